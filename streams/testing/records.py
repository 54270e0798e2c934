"""Records of an app's topics, encoded and decoded for tests."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..agent import Agent
from ..app import App
from ..engine.block import Headers
from ..errors import DecodeError
from ..serde import payload_of
from ..topic import GivenHeaders, Topic


class OutputRecord(NamedTuple):
    """A committed record of a topic, decoded. ``timestamp`` in seconds since the epoch."""

    key: Any
    value: Any
    headers: dict[str, bytes | None]
    timestamp: float
    partition: int
    offset: int


def topic_of(app: App, topic: str | Topic | Agent, existing: Collection[str] | None) -> Topic:
    """The declared topic of that name that has types, if any has.

    Raises KeyError when it is neither declared nor among ``existing`` (None: anything may exist).
    """
    if isinstance(topic, Agent):
        topic = topic.topic
    name = topic if isinstance(topic, str) else topic.name
    declared = [each for each in app.declared_topics() if name in each.names]
    if existing is not None and name not in existing:
        names = ", ".join(sorted(existing))
        raise KeyError(f"there is no topic {name!r}; topics are: {names}")
    if not declared:
        return Topic(app, (name,))
    declared.sort(key=lambda each: each.value_type is None and each.key_type is None)
    found = declared[0]
    if found.name == name:
        return found
    return Topic(  # one of several names
        app,
        (name,),
        key_type=found.key_type,
        value_type=found.value_type,
        key_serializer=found.key_codec,
        value_serializer=found.value_codec,
    )


def decoded(
    topic: Topic,
    partition: int,
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    offsets: Sequence[int],
    timestamps: Sequence[int],
    headers: Sequence[Headers] | None,
) -> Iterator[OutputRecord]:
    """``timestamps`` in ms. Raises DecodeError, except for topics without types: these may hold
    anything, and what is not JSON there stays bytes."""
    for index, (raw_key, raw_value) in enumerate(zip(keys, values, strict=True)):
        place = f"{topic.name}-{partition} at offset {offsets[index]}"
        found = headers[index] if headers is not None else ()
        if raw_key is not None:
            raw_key = payload_of(topic.key_codec, raw_key, found)
        if raw_value is not None:
            raw_value = payload_of(topic.value_codec, raw_value, found)
        yield OutputRecord(
            None if raw_key is None else _decode(topic, topic.decode_key, raw_key, place),
            None if raw_value is None else _decode(topic, topic.decode_value, raw_value, place),
            dict(found),
            timestamps[index] / 1000,
            partition,
            offsets[index],
        )


def encoded(encode: Callable[[Any], bytes], given: Any) -> bytes | None:
    """Bytes and None as they are."""
    return given if given is None or type(given) is bytes else encode(given)


def encoded_headers(given: GivenHeaders | None) -> Headers:
    pairs = given.items() if isinstance(given, Mapping) else given or ()
    return tuple((key, text.encode() if isinstance(text, str) else text) for key, text in pairs)


def _decode(topic: Topic, decode: Callable[[bytes], Any], raw: bytes, place: str) -> Any:
    try:
        return decode(raw)
    except Exception as error:
        if topic.value_type is None and topic.key_type is None:
            return raw
        raise DecodeError(f"{place}: {raw[:100]!r} cannot be decoded: {error}") from error
