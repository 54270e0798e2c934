"""Where a ``$ref`` leads: the documents a schema may point into, by URI, anchor and pointer."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote, urldefrag, urljoin

from ..json_text import Json
from ..schema import InvalidSchema

_VALUES = frozenset({"enum", "const", "default", "examples", "example"})
"""Keywords whose value is data: an ``$id`` in there is none."""


class Documents:
    """All schemas of one parse: the root and the referenced ones. Nothing is ever fetched."""

    def __init__(self) -> None:
        self._by_uri: dict[str, Json] = {}
        self._anchors: dict[tuple[str, str], Json] = {}
        self._bases: dict[int, str] = {}

    def add(self, uri: str, document: Json) -> None:
        """Makes ``document`` known under ``uri`` and under every ``$id`` in it."""
        self._by_uri.setdefault(uri, document)
        declared = document.get("$schema") if isinstance(document, dict) else None
        id_member = "id" if isinstance(declared, str) and "draft-04" in declared else "$id"
        stack: list[tuple[Json, str]] = [(document, uri)]
        while stack:
            node, base = stack.pop()
            if isinstance(node, dict):
                base = self._enter(node, base, id_member)
                self._bases[id(node)] = base
            stack += [(inner, base) for inner in _children(node)]

    def _enter(self, node: dict[str, Json], base: str, id_member: str) -> str:
        value = node.get(id_member)
        if isinstance(value, str):
            uri, fragment = urldefrag(_join(base, value))
            if fragment:
                self._anchors.setdefault((uri, fragment), node)
            else:
                self._by_uri.setdefault(uri, node)
                base = uri
        for member in ("$anchor", "$dynamicAnchor"):
            value = node.get(member)
            if isinstance(value, str):
                self._anchors.setdefault((base, value), node)
        return base

    def base_of(self, node: dict[str, Json]) -> str:
        """The URI ``$ref``s in ``node`` are relative to."""
        return self._bases.get(id(node), "")

    def resolve(self, reference: str, base: str, path: str) -> Json:
        """The schema ``reference`` leads to. Raises ``InvalidSchema`` when it leads nowhere."""
        uri, fragment = urldefrag(_join(base, reference))
        written, _ = urldefrag(reference)
        document = self._by_uri.get(uri)
        if document is None and written:
            document = self._by_uri.get(written)  # a reference is registered as it is written
            uri = written
        if document is None:
            if _is_metaschema(uri):
                return True
            raise InvalidSchema(f"$ref {reference!r} names no schema in the references", path)
        fragment = unquote(fragment)
        if not fragment:
            return document
        if not fragment.startswith("/"):
            try:
                return self._anchors[(uri, fragment)]
            except KeyError:
                raise InvalidSchema(f"$ref {reference!r} names no anchor", path) from None
        try:
            return _follow(document, fragment)
        except (KeyError, IndexError, ValueError):
            raise InvalidSchema(f"$ref {reference!r} leads nowhere", path) from None


def _children(node: Json) -> Iterator[Json]:
    if isinstance(node, dict):
        for name, value in node.items():
            if name not in _VALUES or not isinstance(node.get("type"), str | list):
                yield value
    elif isinstance(node, list):
        yield from node


def _join(base: str, reference: str) -> str:
    if reference.startswith("#"):
        return base + reference  # urljoin drops the base of a urn:
    try:
        return urljoin(base, reference)
    except ValueError:  # a malformed host part
        return reference


def _follow(document: Json, pointer: str) -> Json:
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(document, dict):
            document = document[name]
        elif isinstance(document, list):
            document = document[int(name)]
        else:
            raise KeyError(name)
    return document


def _is_metaschema(uri: str) -> bool:
    return uri.rstrip("#").startswith(
        ("http://json-schema.org/draft-", "https://json-schema.org/draft/")
    )
