"""What clients ask of simulated registries, and what they were told."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote

from onceward.registry.exchange import Address, BadAnswer, exchange

LATEST = -1
GLOBAL = ""
LEVELS = ("NONE", "BACKWARD")
SUBJECTS = ("orders", "users", "a/b c")
READS = frozenset({"look_up", "by_id", "version", "versions", "get_config"})
CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


class Op(NamedTuple):
    """One request. ``schema`` is a text; of two families, which are incompatible."""

    kind: str
    subject: str = ""
    schema: str = ""
    version: int = 0
    id: int = 0
    level: str = ""
    deleted: bool = False
    permanent: bool = False

    def __str__(self) -> str:
        told = [str(each) for each in self[1:] if each not in ("", 0, False)]
        return f"{self.kind}({', '.join(told)})"

    def request(self) -> tuple[str, str, Any]:
        """Method, path with query, body."""
        subject = f"/subjects/{quote(self.subject, safe='')}"
        version = "latest" if self.version == LATEST else str(self.version)
        deleted = "?deleted=true" if self.deleted else ""
        permanent = "?permanent=true" if self.permanent else ""
        config = f"/config/{quote(self.subject, safe='')}" if self.subject else "/config"
        body = {"schema": self.schema}
        return {
            "register": ("POST", f"{subject}/versions", body),
            "look_up": ("POST", subject + deleted, body),
            "by_id": ("GET", f"/schemas/ids/{self.id}", None),
            "version": ("GET", f"{subject}/versions/{version}", None),
            "versions": ("GET", f"{subject}/versions{deleted}", None),
            "delete_version": ("DELETE", f"{subject}/versions/{version}{permanent}", None),
            "delete_subject": ("DELETE", f"{subject}{permanent}", None),
            "set_config": ("PUT", config, {"compatibility": self.level}),
            "delete_config": ("DELETE", config, None),
            "get_config": ("GET", f"{config}?defaultToGlobal=true", None),
        }[self.kind]


@dataclass(slots=True)
class Call:
    """One try of an operation at one instance. ``status`` 0: no answer."""

    client: str
    at: str
    op: Op
    start: float
    end: float = 0.0
    status: int = 0
    answer: Any = None

    @property
    def code(self) -> int:
        """200, the error code of a refusal, or 0 when it is not known what became of it."""
        if self.status == 200:
            return 200
        if not 400 <= self.status < 500 or self.status in (408, 429):
            return 0
        code = self.answer.get("error_code") if isinstance(self.answer, dict) else None
        return code if isinstance(code, int) else self.status

    def __str__(self) -> str:
        took = f"{self.start:.3f}-{self.end:.3f}"
        return f"{took} {self.client} at {self.at}: {self.op} -> {self.status} {self.answer}"


def schema(family: str, number: int) -> str:
    """A record as the registry spells it; those of one family can read each other."""
    fields: list[dict[str, Any]] = [{"name": "f", "type": family}]
    if number:
        fields.append({"name": f"n{number}", "type": "int", "default": 0})
    return json.dumps({"type": "record", "name": "R", "fields": fields}, separators=(",", ":"))


def family(text: str) -> str:
    found: str = json.loads(text)["fields"][0]["type"]
    return found


@dataclass
class Told:
    """Everything that was asked and answered, by all clients."""

    calls: list[Call] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    schemas: dict[str, list[str]] = field(default_factory=lambda: {each: [] for each in SUBJECTS})
    """Those that were tried, so that some are tried again."""
    made: int = 0


def draw(rng: random.Random, told: Told) -> Op:
    """The next operation of a client: everything happens to the same few subjects."""
    subject = rng.choice(SUBJECTS)
    kind = rng.choices(
        ("register", "look_up", "by_id", "version", "versions", "delete_version", "delete_subject",
         "set_config", "delete_config", "get_config"),
        (10, 3, 3, 4, 3, 3, 2, 2, 1, 2),
    )[0]  # fmt: skip
    if kind in ("register", "look_up"):
        text = _schema_for(rng, subject, told)
        return Op(kind, subject, text, deleted=kind == "look_up" and rng.random() < 0.3)
    if kind == "by_id":
        known = told.ids[-6:] or [1]
        return Op(kind, id=rng.choice([*known, known[-1] + 1]))
    if kind in ("version", "delete_version"):
        number = rng.choice((LATEST, LATEST, 1, 2, 3, 4))
        permanent = kind == "delete_version" and rng.random() < 0.4
        if permanent and number == LATEST:
            number = 1
        return Op(kind, subject, version=number, permanent=permanent)
    if kind in ("set_config", "delete_config", "get_config"):
        scope = rng.choice((subject, subject, GLOBAL)) if kind != "delete_config" else subject
        level = rng.choice(LEVELS) if kind == "set_config" else ""
        return Op(kind, scope, level=level)
    if kind == "delete_subject":
        return Op(kind, subject, permanent=rng.random() < 0.5)
    return Op(kind, subject, deleted=rng.random() < 0.4)


def _schema_for(rng: random.Random, subject: str, told: Told) -> str:
    """A new one, or again one of the last, mostly of this subject: it may be deleted by now."""
    known = told.schemas[subject if rng.random() < 0.7 else rng.choice(SUBJECTS)]
    if known and rng.random() < 0.6:
        text = rng.choice(known[-4:])
    else:
        text = schema(rng.choice(("int", "int", "int", "string")), told.made)
        told.made += 1
    if text not in told.schemas[subject]:
        told.schemas[subject].append(text)
    return text


async def ask(address: str, op: Op) -> tuple[int, Any]:
    """Status and answer. Raises OSError, EOFError, BadAnswer."""
    method, path, body = op.request()
    return await send(address, method, path, body)


async def send(address: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """The same for any request."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": CONTENT_TYPE} if body is not None else {}
    found = await exchange(Address.parse(address), method, path, headers, data)
    try:
        return found.status, json.loads(found.body)
    except ValueError:
        raise BadAnswer(f"it is no JSON: {found.body[:80]!r}") from None
