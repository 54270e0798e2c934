"""Subject name strategies: under which subject a topic's schemas are registered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

SubjectStrategy: TypeAlias = Callable[[str, bool, str | None], str]
"""From topic, whether it is for keys, and the name of the record, to the subject. Raises
ValueError."""


def topic_name(topic: str, is_key: bool, record: str | None) -> str:
    """``orders-value``: all records of a topic have versions of one schema."""
    return f"{topic}-{'key' if is_key else 'value'}"


def record_name(topic: str, is_key: bool, record: str | None) -> str:
    """``shop.Order``: a record type has one subject in all topics, a topic many types."""
    if not record:
        raise ValueError("subject_name_strategy='record' needs a schema with a name")
    return record


def topic_record_name(topic: str, is_key: bool, record: str | None) -> str:
    """``orders-shop.Order``."""
    if not record:
        raise ValueError("subject_name_strategy='topic_record' needs a schema with a name")
    return f"{topic}-{record}"


_BY_NAME: Final[dict[str, SubjectStrategy]] = {
    "topic": topic_name,
    "record": record_name,
    "topic_record": topic_record_name,
}


def subject_strategy(given: str | SubjectStrategy) -> SubjectStrategy:
    """Raises ValueError for an unknown name."""
    if callable(given):
        return given
    name = given.lower().replace("-", "_").replace("namestrategy", "").removesuffix("_name")
    name = {"topicrecord": "topic_record"}.get(name, name)
    if name not in _BY_NAME:
        known = ", ".join(map(repr, _BY_NAME))
        raise ValueError(f"subject_name_strategy {given!r} is unknown: use one of {known}")
    return _BY_NAME[name]
