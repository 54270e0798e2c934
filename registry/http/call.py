"""One request as a handler sees it: path parameters, query, body."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import parse_qsl

from ..entities import LATEST, MAX_ID
from ..errors import RegistryError, invalid_version
from ..schemas import InvalidSchema, Limits
from ..schemas.json_text import Json, load_json
from ..subjects import (
    DEFAULT_CONTEXT,
    QualifiedSubject,
    checked_scope,
    checked_subject,
    in_context,
)

T = TypeVar("T")

MAX_QUERY_PAIRS = 1_000
MAX_BODY_DEPTH = 100
_NUMBER = re.compile(r"-?[0-9]{1,10}")
_ID = re.compile(r"[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class Call:
    """``parameters`` are decoded path segments; ``context`` comes from ``/contexts/{context}/``."""

    method: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, list[str]] = field(default_factory=dict)
    body: bytes = b""
    context: str = DEFAULT_CONTEXT
    behind_alias: Callable[[str], str] = str
    """The subject that is meant by a subject's name."""

    # query: names and booleans in any case, unknown names ignored

    def text(self, name: str, default: str = "") -> str:
        values = self.query.get(name.lower())
        return values[-1] if values else default

    def texts(self, name: str) -> list[str]:
        return self.query.get(name.lower(), [])

    def flag(self, name: str) -> bool:
        return self.text(name).lower() == "true"

    def number(self, name: str, default: int) -> int:
        text = self.text(name)
        if not text:
            return default
        if not _NUMBER.fullmatch(text):
            raise RegistryError(400, f"{name} is not a number")
        return int(text)

    def page(self, values: list[T], cap: int | None = None) -> list[T]:
        """The part of ``values`` that ``offset`` and ``limit`` ask for; negative = no limit."""
        offset, limit = max(self.number("offset", 0), 0), self.number("limit", -1)
        if cap is not None and not 0 <= limit <= cap:
            limit = cap
        return values[offset:] if limit < 0 else values[offset : offset + limit]

    # path

    @property
    def subject(self) -> str:
        """Raises ``RegistryError`` 42208."""
        name = checked_subject(in_context(self.context, self.parameters["subject"]))
        return self.behind_alias(name)

    @property
    def scope(self) -> str:
        """The subject or context of a setting, ``""`` for all. Raises ``RegistryError`` 42208."""
        name = self.parameters.get("subject")
        if name is None:
            return str(QualifiedSubject(self.context, ""))
        return checked_scope(in_context(self.context, name))

    @property
    def subject_filter(self) -> QualifiedSubject:
        """The ``subject`` of the query; its name is empty when there is none."""
        text = in_context(self.context, self.text("subject"))
        return QualifiedSubject.parse(self.behind_alias(text))

    @property
    def schema_id(self) -> int:
        """Raises ``RegistryError`` 404 for what is no id."""
        text = self.parameters["id"]
        if not _ID.fullmatch(text):
            raise RegistryError(404, "HTTP 404 Not Found")
        return int(text)

    @property
    def version(self) -> int:
        """-1 for the newest. Raises ``RegistryError`` 42202."""
        text = self.parameters["version"]
        if text == "latest":
            return LATEST
        if not _NUMBER.fullmatch(text):
            raise invalid_version(text)
        number = int(text)
        if number != LATEST and not 0 < number <= MAX_ID:
            raise invalid_version(text)
        return number

    # body

    def json_object(self) -> dict[str, Json]:
        """Raises ``RegistryError`` 400."""
        try:
            text = self.body.decode()
            value = load_json(text, Limits(max_bytes=len(self.body), max_depth=MAX_BODY_DEPTH))
        except (InvalidSchema, UnicodeDecodeError) as error:
            raise RegistryError(400, f"The body cannot be read as JSON: {error}") from None
        if not isinstance(value, dict):
            raise RegistryError(400, "The body is not a JSON object")
        return value


def parse_query(raw: bytes) -> dict[str, list[str]]:
    """Raises ``RegistryError`` 400."""
    try:
        pairs = parse_qsl(
            raw.decode("ascii", "replace"), keep_blank_values=True, max_num_fields=MAX_QUERY_PAIRS
        )
    except ValueError:
        raise RegistryError(400, "The query cannot be read") from None
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name.lower(), []).append(value)
    return found
