"""A parsed JSON Schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

from ..json_text import Json, dump_json, load_json
from ..schema import (
    InvalidSchema,
    Limits,
    ParsedSchema,
    Reference,
    ResolvedReference,
    SchemaType,
    sorted_references,
)
from .documents import Documents
from .loader import Loader
from .nodes import Node


class JsonSchema(ParsedSchema):
    """``root`` is the tree of typed nodes, ``document`` the JSON it was made of."""

    schema_type: ClassVar[SchemaType] = SchemaType.JSON

    def __init__(
        self, document: Json, root: Node, references: tuple[Reference, ...], canonical: str
    ) -> None:
        super().__init__(canonical, references)
        self.document = document
        self.root = root

    @classmethod
    def parse(
        cls,
        text: str,
        references: tuple[Reference, ...] = (),
        resolved: Sequence[ResolvedReference] = (),
        *,
        strict: bool = True,
        limits: Limits | None = None,
    ) -> Self:
        """``resolved`` comes from ``resolve_references``. Raises ``InvalidSchema``."""
        limits = limits or Limits()
        document = load_json(text, limits)
        documents = Documents()
        documents.add("", document)
        for one in resolved:
            if one.schema_type is not SchemaType.JSON:
                raise InvalidSchema(f"reference {one.name!r} is no JSON Schema")
            documents.add(one.name, load_json(one.text, limits))
        root = Loader(documents, document).load()
        return cls(document, root, references, dump_json(document))

    @property
    def name(self) -> str | None:
        title = self.document.get("title") if isinstance(self.document, dict) else None
        return title if isinstance(title, str) else None

    def normalized(self) -> Self:
        """Members in order of their names; lists keep their order."""
        text = dump_json(self.document, sort_keys=True)
        return type(self)(self.document, self.root, sorted_references(self.references), text)
