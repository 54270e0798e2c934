"""The 16-byte GUID of a schema, which header serializers put beside a record.

Source: Confluent's ``MD5.ofSchema`` and the ``updateHash`` methods of its REST entities, from 8.0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping

from .json_text import Json
from .schema import Reference

_RULE_TEXTS = ("name", "doc", "kind", "mode", "type")


def schema_guid(
    text: str,
    references: Iterable[Reference] = (),
    metadata: Mapping[str, Json] | None = None,
    rule_set: Mapping[str, Json] | None = None,
) -> str:
    """The GUID of canonical ``text`` and what was registered with it, in UUID form.

    ``metadata`` and ``rule_set`` are the JSON objects of the REST interface; an absent one and an
    empty one differ.
    """
    digest = hashlib.md5(text.encode(), usedforsecurity=False)
    for reference in references:
        digest.update(reference.name.encode())
        digest.update(reference.subject.encode())
        digest.update(reference.version.to_bytes(4, "big", signed=True))
    if metadata is not None:
        digest.update(b"\x01")
        digest.update(b"".join(_metadata(metadata)))
    if rule_set is not None:
        digest.update(b"\x01")
        digest.update(b"".join(_rule_set(rule_set)))
    plain = digest.hexdigest()
    return "-".join((plain[:8], plain[8:12], plain[12:16], plain[16:20], plain[20:]))


def _metadata(metadata: Mapping[str, Json]) -> Iterator[bytes]:
    yield from _pairs(metadata.get("tags"))
    yield from _pairs(metadata.get("properties"))
    yield from _texts(metadata.get("sensitive"), ordered=True)


def _rule_set(rule_set: Mapping[str, Json]) -> Iterator[bytes]:
    for group in ("migrationRules", "domainRules", "encodingRules"):
        rules = rule_set.get(group)
        for rule in rules if isinstance(rules, list) else ():
            if isinstance(rule, dict):
                yield from _rule(rule)
    yield from _texts(rule_set.get("enableAt"))


def _rule(rule: Mapping[str, Json]) -> Iterator[bytes]:
    for member in _RULE_TEXTS:
        yield from _texts(rule.get(member))
    yield from _texts(rule.get("tags"), ordered=True)
    yield from _pairs(rule.get("params"))
    for member in ("expr", "onSuccess", "onFailure"):
        yield from _texts(rule.get(member))
    if rule.get("disabled"):
        yield b"\x01"


def _pairs(value: Json) -> Iterator[bytes]:
    if isinstance(value, dict):
        for name in sorted(value):
            yield name.encode()
            yield from _texts(value[name], ordered=True)


def _texts(value: Json, ordered: bool = False) -> Iterator[bytes]:
    """The text itself, or those of a list; sets are hashed in order."""
    if isinstance(value, str):
        yield value.encode()
    elif isinstance(value, list):
        texts = [item for item in value if isinstance(item, str)]
        for item in sorted(texts) if ordered else texts:
            yield item.encode()
