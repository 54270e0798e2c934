"""CSV files, as a directory of them is filled and read in the driver."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from onceward.streams import App, ConfigurationError, Record
from onceward.streams.sources import CsvFiles, SourceError
from onceward.streams.sources.files import TextFiles
from onceward.streams.testing import AppDriver


class Order(Record):
    id: str
    amount: int
    note: str | None = None
    weight: float | None = None


def make_app(folder: Path, *, typed: bool = False, **options: Any) -> App:
    app = App("shop", topic_partitions=2)
    topic = app.topic("orders", key_type=str, value_type=Order if typed else None)
    source = {name: options.pop(name) for name in ("key", "on_bad_row", "splits")
              if name in options}  # fmt: skip
    pattern = options.pop("pattern", "*.csv")
    app.source(topic, CsvFiles(folder / pattern, **options), **{"key": "id", **source})
    return app


def values(driver: AppDriver) -> list[Any]:
    return [record.value for record in driver.output("orders")]


def ids(driver: AppDriver) -> list[str]:
    return sorted(value["id"] for value in values(driver))


def read_all(app: App) -> list[Any]:
    with AppDriver(app) as driver:
        driver.run_source("orders")
        return sorted(values(driver), key=lambda value: value["id"])


def test_rows_are_dicts_by_the_header_and_the_key_is_a_column(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('id,amount\n1,5\n2,"6,5"\n')
    with AppDriver(make_app(tmp_path)) as driver:
        driver.run_source("orders")
        found = sorted((record.key, record.value) for record in driver.output("orders"))
        assert found == [("1", {"id": "1", "amount": "5"}), ("2", {"id": "2", "amount": "6,5"})]


def test_rows_become_values_of_the_topics_type(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,amount,note,weight\n1,5,,\n2,7,hello,1.5\n")
    app = make_app(tmp_path, typed=True)
    with AppDriver(app) as driver:
        driver.run_source("orders")
        assert sorted(values(driver), key=lambda order: order.id) == [
            Order("1", 5, "", None),
            Order("2", 7, "hello", 1.5),
        ]


def test_texts_that_mean_missing_are_left_to_the_models_default(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,amount,note,weight\nNA,5,NA,NA\n2,7,,\n3,7,,1.5\n")
    app = make_app(tmp_path, typed=True, missing=("", "NA"))
    with AppDriver(app) as driver:
        driver.run_source("orders")
        assert sorted(values(driver), key=lambda order: order.id) == [
            Order("2", 7, "", None),
            Order("3", 7, "", 1.5),
            Order("NA", 5, "NA", None),
        ]
    with pytest.raises(ConfigurationError, match="missing must be a list"):
        CsvFiles(tmp_path, missing="NA")


def test_quoted_fields_may_hold_newlines_wherever_a_chunk_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [(str(n), "x" * (n % 7) + '\r\n"quoted"\n' * (n % 3)) for n in range(40)]
    quoted = [(row[0], row[1].replace('"', '""')) for row in rows]
    text = "id,note\n" + "".join(f'{n},"{note}"\n' for n, note in quoted)
    (tmp_path / "a.csv").write_bytes(text.encode())
    for size in (1, 7, 50, 1000):
        monkeypatch.setattr(TextFiles, "chunk_bytes", size)
        found = read_all(make_app(tmp_path))
        assert sorted((row["id"], row["note"]) for row in found) == sorted(rows)


def test_the_last_line_needs_no_newline_and_blank_lines_are_none(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfid;amount\r\n1;5\r\n\r\n2;6")
    found = read_all(make_app(tmp_path, delimiter=";"))
    assert found == [{"id": "1", "amount": "5"}, {"id": "2", "amount": "6"}]


def test_files_without_a_header_are_given_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,5\n2,6\n")
    assert read_all(make_app(tmp_path, columns=["id", "amount"])) == [
        {"id": "1", "amount": "5"},
        {"id": "2", "amount": "6"},
    ]


def test_compressed_files_are_read_and_gone_on_with(tmp_path: Path) -> None:
    lines = "".join(f"{n},{n}\n" for n in range(100_000))
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(f"id,amount\n{lines}".encode()))
    app = make_app(tmp_path, pattern="*.csv.gz")
    with AppDriver(app) as driver:
        driver.run_source("orders", rows=1)
        before = len(values(driver))
        assert 0 < before < 100_000
        driver.crash()
        driver.run_source("orders")
        assert len(values(driver)) == 100_000
        assert len(set(ids(driver))) == 100_000


def test_files_are_read_by_name_and_new_ones_are_found(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("id\nb1\n")
    (tmp_path / "a.csv").write_text("id\na1\na2\n")
    (tmp_path / "c.txt").write_text("id\nc1\n")
    app = make_app(tmp_path, key=lambda row: "same", watch=5.0)
    with AppDriver(app) as driver:
        driver.run_source("orders")
        assert [row["id"] for row in values(driver)] == ["a1", "a2", "b1"]
        (tmp_path / "a0.csv").write_text("id\na0\n")
        driver.advance(4)
        assert len(values(driver)) == 3
        driver.advance(2)
        assert [row["id"] for row in values(driver)] == ["a1", "a2", "b1", "a0"]
        driver.crash()
        driver.run_source("orders")
        driver.advance(20)
        assert len(values(driver)) == 4


def test_without_watching_the_source_ends(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\na1\n")
    with AppDriver(make_app(tmp_path, watch=None)) as driver:
        driver.run_source("orders")
        (tmp_path / "b.csv").write_text("id\nb1\n")
        driver.advance(100)
        assert ids(driver) == ["a1"]
        driver.crash()
        driver.run_source("orders")
        assert ids(driver) == ["a1", "b1"]


def test_a_directory_that_moves_or_is_away_for_a_moment_is_not_read_anew(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text("id\na1\n")
    with AppDriver(make_app(folder, watch=1.0)) as driver:
        driver.run_source("orders")
        folder.rename(tmp_path / "away")
        driver.advance(3)
        (tmp_path / "away").rename(folder)
        driver.advance(3)
        assert ids(driver) == ["a1"]


def test_splits_share_the_files(tmp_path: Path) -> None:
    for n in range(20):
        (tmp_path / f"{n}.csv").write_text(f"id\n{n}\n")
    with AppDriver(make_app(tmp_path, splits=3)) as driver:
        driver.run_source("orders", split="1")
        assert 0 < len(values(driver)) < 20
        driver.run_source("orders")
        assert sorted(map(int, ids(driver))) == list(range(20))


# files that change


def test_a_file_that_changed_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("id\na1\na2\n")
    with AppDriver(make_app(tmp_path)) as driver:
        driver.run_source("orders")
        file.write_text("id\na1\na2\na3\n")
        with pytest.raises(SourceError, match=r"a\.csv has 12 bytes, but had 9: .*grows=True"):
            driver.advance(2)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda text: text.replace("id,", "no,"), "begins with other bytes"),
        (lambda text: text[:1100] + text[1100:].replace("x", "y"), "has other bytes before offset"),
    ],
)
def test_a_half_read_file_that_changed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Any, complaint: str
) -> None:
    monkeypatch.setattr(TextFiles, "chunk_bytes", 1100)
    file = tmp_path / "a.csv"
    text = "id,note\n" + "".join(f"{n},{'x' * 100}\n" for n in range(30))
    file.write_text(text)
    with AppDriver(make_app(tmp_path)) as driver:
        driver.run_source("orders", rows=13)
        assert len(values(driver)) < 30
        file.write_text(change(text))
        driver.crash()
        with pytest.raises(SourceError, match=complaint):
            driver.run_source("orders")


def test_a_bad_row_that_is_corrected_in_place_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TextFiles, "chunk_bytes", 200)
    lines = [f"{n},{n}\n" for n in range(200)]
    text = "id,amount\n" + "".join([*lines[:150], "150,one,two\n", *lines[151:]])
    file = tmp_path / "a.csv"
    file.write_text(text)
    with AppDriver(make_app(tmp_path)) as driver:
        with pytest.raises(SourceError, match="line 152: it has 3 columns"):
            for _ in range(100):
                driver.run_source("orders", rows=1)
        assert 100 < len(values(driver)) < 151
        file.write_text(text.replace("150,one,two", "150,150"))
        driver.crash()
        driver.run_source("orders")
        assert sorted(map(int, ids(driver))) == list(range(200))


def test_a_file_may_grow_when_that_is_said(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("id,amo")
    with AppDriver(make_app(tmp_path, grows=True)) as driver:
        driver.run_source("orders")
        for text, expected in [
            ("unt\n1,1\n", ["1"]),
            ("2,", ["1"]),
            ("2\n3,3\n4", ["1", "2", "3"]),
            (",4\n", ["1", "2", "3", "4"]),
        ]:
            with file.open("a") as appending:
                appending.write(text)
            driver.advance(1)
            assert ids(driver) == expected
        driver.crash()
        driver.run_source("orders")
        assert ids(driver) == ["1", "2", "3", "4"]
        file.write_text("id,amount\n")
        with pytest.raises(SourceError, match="has 10 bytes, but 26 were read"):
            driver.advance(1)


# bad rows


BAD = [
    ("id,amount\n1,5\n2\n3,6\n", r"a\.csv line 3: it has 1 columns, not 2"),
    ('id,amount\n1,5\n"2"x,6\n3,6\n', r"a\.csv line 3: ',' expected after"),
    ('id,amount\n1,"a\nb"\n2,3,4\n3,6\n', r"a\.csv line 4: it has 3 columns, not 2"),
    ("id,amount\n1,5\n2,\x00\n3,6,7\n", r"a\.csv line"),
    ("id,amount\n1,5\n2,\udcff\n3,6\n", r"a\.csv line 3: 'utf-8' codec"),
]


@pytest.mark.parametrize(("text", "complaint"), BAD)
def test_a_bad_row_stops_the_worker_with_file_line_and_reason(
    tmp_path: Path, text: str, complaint: str
) -> None:
    (tmp_path / "a.csv").write_bytes(text.encode("utf-8", "surrogateescape"))
    with (
        AppDriver(make_app(tmp_path)) as driver,
        pytest.raises(SourceError, match=complaint) as raised,
    ):
        driver.run_source("orders")
    assert "Nothing from this row on is committed" in str(raised.value)


@pytest.mark.parametrize(("text", "complaint"), BAD[:3])
def test_bad_rows_may_go_to_the_dead_letter_topic(
    tmp_path: Path, text: str, complaint: str
) -> None:
    (tmp_path / "a.csv").write_text(text)
    with AppDriver(make_app(tmp_path, on_bad_row="dead_letter")) as driver:
        driver.run_source("orders")
        assert ids(driver) == ["1", "3"]
        (letter,) = driver.output("shop-dead-letter")
        headers = dict(letter.headers)
        assert headers["onceward-place"] == str(tmp_path / complaint.split(":")[0]).replace(
            "\\", ""
        ).encode()  # fmt: skip


def test_a_quote_that_is_never_closed_is_a_bad_row_where_it_begins(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('id,amount\n1,5\n2,"6\n3,7\n')
    with (
        AppDriver(make_app(tmp_path)) as driver,
        pytest.raises(SourceError, match=r"line 3: a quote is never closed"),
    ):
        driver.run_source("orders")


def test_a_value_that_does_not_fit_the_type_is_a_bad_row(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,amount\n1,5\n2,six\n3,7\n4,\n")
    app = make_app(tmp_path, typed=True, on_bad_row="dead_letter")
    with AppDriver(app) as driver:
        driver.run_source("orders")
        assert sorted(order.id for order in values(driver)) == ["1", "3"]
        places = [(dict(letter.headers)["onceward-place"] or b"").rsplit(b"/")[-1]
                  for letter in driver.output("shop-dead-letter")]  # fmt: skip
        assert sorted(places) == [b"a.csv line 3", b"a.csv line 5"]


def test_a_missing_column_is_told_at_the_header(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,note\n1,5\n")
    with (
        AppDriver(make_app(tmp_path, typed=True)) as driver,
        pytest.raises(SourceError, match=r"has no column amount.*it has id, note"),
    ):
        driver.run_source("orders")


def test_what_cannot_be_read_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,id\n1,2\n")
    with (
        AppDriver(make_app(tmp_path)) as driver,
        pytest.raises(SourceError, match="need different names"),
    ):
        driver.run_source("orders")
    (tmp_path / "b.csv.gz").write_bytes(b"no gzip")
    with (
        AppDriver(make_app(tmp_path, pattern="*.gz")) as driver,
        pytest.raises(SourceError, match="is not a whole gzip file"),
    ):
        driver.run_source("orders")
    with (
        AppDriver(make_app(tmp_path, pattern="none.csv", watch=None)) as driver,
        pytest.raises(SourceError, match=r"none\.csv: there is no such file"),
    ):
        driver.run_source("orders")
    with pytest.raises(ConfigurationError, match="delimiter"):
        CsvFiles("x", delimiter="ab")
    with pytest.raises(ConfigurationError, match="ASCII"):
        CsvFiles("x", encoding="utf-16")
    with pytest.raises(ConfigurationError, match="watch"):
        CsvFiles("x", watch=0)
