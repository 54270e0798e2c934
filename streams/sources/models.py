"""From dicts of a database, a file or an answer to values of the topic's type. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from .encoding import reason_of_row, shown
from .rows import BadRow, Rows

if TYPE_CHECKING:
    from ..topic import Topic

UNTYPED = (None, Any, object, dict)


def typed_rows(
    topic: Topic, found: list[dict[str, Any]], position: Any, place: Callable[[int], str]
) -> Rows:
    """Rows with values of the topic's type; what cannot become one is bad."""
    kind = topic.value_type
    if kind in UNTYPED:
        return Rows(position, found, place=place)
    convert = _converter(topic)
    try:
        return Rows(position, convert(found), place=place)
    except Exception:  # noqa: BLE001 - models are user code
        pass
    made: list[Any] = []
    kept: list[int] = []
    bad: list[BadRow] = []
    for index, row in enumerate(found):
        try:
            made += convert([row])
        except Exception as error:  # noqa: BLE001 - as above
            bad.append(BadRow(place(index), reason_of_row(error), shown(row)))
            continue
        kept.append(index)
    return Rows(position, made, bad=bad, place=lambda index: place(kept[index]))


def _converter(topic: Topic) -> Callable[[list[dict[str, Any]]], list[Any]]:
    kind: Any = topic.value_type
    try:
        msgspec.json.Decoder(kind)
    except TypeError:  # another library's model
        return lambda rows: [topic.decode_value(msgspec.json.encode(row)) for row in rows]
    return lambda rows: msgspec.convert(rows, list[kind], strict=False)
