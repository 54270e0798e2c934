"""JSON Lines, read in the driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from onceward.streams import App, Codec, Record
from onceward.streams.sources import JsonLines, SourceError
from onceward.streams.testing import AppDriver


class Order(Record):
    id: str
    amount: int


def make_app(
    folder: Path, *, value_type: Any = None, serializer: Any = None, **options: Any
) -> App:
    app = App("shop", topic_partitions=2)
    topic = app.topic("orders", key_type=str, value_type=value_type, value_serializer=serializer)
    app.source(topic, JsonLines(folder / "*.jsonl"), **options)
    return app


def read(app: App) -> list[tuple[Any, Any]]:
    with AppDriver(app) as driver:
        driver.run_source("orders")
        return [(record.key, record.value) for record in driver.output("orders")]


GOOD = b'{"id": "a", "amount": 1, "more": [1]}\r\n\n  \n{"amount":2,"id":"b"}'


@pytest.mark.parametrize("key", ["id", lambda value: value["id"]])
def test_lines_become_records_as_they_are(tmp_path: Path, key: Any) -> None:
    (tmp_path / "a.jsonl").write_bytes(GOOD)
    as_bytes = Codec(msgspec.json.Encoder().encode, bytes)
    assert sorted(read(make_app(tmp_path, serializer=as_bytes, key=key))) == [
        ("a", b'{"id": "a", "amount": 1, "more": [1]}'),
        ("b", b'{"amount":2,"id":"b"}'),
    ]


def test_lines_are_checked_against_the_topics_type(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(GOOD)
    assert sorted(read(make_app(tmp_path, value_type=Order, key="id"))) == [
        ("a", Order("a", 1)),
        ("b", Order("b", 2)),
    ]


def test_without_a_key_any_value_is_fine(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'[1]\n"x"\nnull\n')
    assert [value for _, value in read(make_app(tmp_path))] == [[1], "x", None]


def test_topics_that_are_not_json_get_decoded_values(tmp_path: Path) -> None:
    class Reversed:
        def dumps(self, value: Any) -> bytes:
            return str(value["id"]).encode()[::-1]

        def loads(self, data: bytes) -> str:
            return data[::-1].decode()

    (tmp_path / "a.jsonl").write_bytes(b'{"id":"ab"}\n')
    assert read(make_app(tmp_path, serializer=Reversed(), key="id")) == [("ab", "ab")]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"id": "x", ', "truncated"),
        (b'{"id": "x"} {"id": "y"}', "trailing"),
        (b'{"amount": 1}', "missing required field `id`"),
        (b'["x"]', "Expected `object`"),
        (b'{"id": "x", "note": "\xff"}', "utf-8"),
    ],
)
def test_a_bad_line_stops_the_worker_or_is_dead_lettered(
    tmp_path: Path, line: bytes, reason: str
) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"id":"a"}\n\n' + line + b'\n{"id":"b"}\n')
    with (
        AppDriver(make_app(tmp_path, key="id")) as driver,
        pytest.raises(SourceError, match=rf"a\.jsonl line 3: .*{reason}"),
    ):
        driver.run_source("orders")
    app = make_app(tmp_path, key="id", on_bad_row="dead_letter")
    with AppDriver(app) as driver:
        driver.run_source("orders")
        assert sorted(record.key for record in driver.output("orders")) == ["a", "b"]
        letters = driver.output(app.topic("shop-dead-letter", value_type=bytes))
        assert [letter.value for letter in letters] == [line]


def test_a_key_that_cannot_be_made_is_a_bad_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"id":"a"}\n{"id":{}}\n{"no":1}\n')
    app = make_app(tmp_path, key=lambda value: value["id"], on_bad_row="dead_letter")
    with AppDriver(app) as driver:
        driver.run_source("orders")
        assert [record.key for record in driver.output("orders")] == ["a"]
        letters = driver.output("shop-dead-letter")
        assert [letter.value for letter in letters] == [{"id": {}}, {"no": 1}]
        assert dict(letters[1].headers)["onceward-error"] == b"it has no field 'id'"
