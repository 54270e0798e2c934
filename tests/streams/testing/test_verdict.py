"""Verdicts: what a user reads when a run was wrong."""

from __future__ import annotations

from onceward.streams.testing.checker import check
from onceward.streams.testing.history import (
    Anomaly,
    Event,
    Expectation,
    History,
    Level,
    LogRecord,
    OffsetCommit,
    Position,
    Read,
    Sent,
    project,
)
from onceward.streams.testing.verdict import explain, verdict


def place(topic: str, offset: int) -> Position:
    return Position(topic, 0, offset)


def record(
    topic: str, offset: int, key: bytes | None, value: bytes, status: str, of: str = ""
) -> LogRecord:
    return LogRecord(place(topic, offset), key, value, 0, (), status, of)


def word_count() -> History:
    """A line without a key is split into words; a killed worker's work shows up twice."""
    first = (place("counts", 0), place("counts", 1))
    second = (place("counts", 3), place("counts", 4))
    return History(
        group="words",
        inputs=[Sent("lines", 0, None, b"the cat", 1000.0, 1000.004, 0)],
        log={
            ("lines", 0): [record("lines", 0, None, b"the cat", "committed")],
            ("counts", 0): [
                record("counts", 0, b"the", b"1", "committed", "7/0"),
                record("counts", 1, b"cat", b"1", "committed", "7/0"),
                record("counts", 3, b"the", b"1", "committed", "8/0"),
                record("counts", 4, b"cat", b"1", "committed", "8/0"),
            ],
        },
        reads=[Read("reader", 1000.9, place("counts", 1), b"cat", b"1")],
        commits=[OffsetCommit("words", "lines", 0, 1, 1000.75)],
        events=[
            Event(1000.001, "worker-0", "joined", "generation 1"),
            Event(1000.01, "worker-0", "fetched", "", (place("lines", 0),)),
            Event(1000.011, "worker-0", "produced", "", first),
            Event(1000.012, "worker-0", "end_txn commit", "", first),
            Event(1000.0125, "worker-0", "kill", "aimed at END_TXN"),
            Event(1000.2125, "worker-0", "restart"),
            Event(1000.5, "worker-1", "fetched", "", (place("lines", 0),)),
            Event(1000.51, "worker-1", "produced", "", second),
            Event(1000.52, "worker-1", "end_txn commit", "", second),
            Event(1009.0, "broker", "kill"),
        ],
    )


COUNTED = [
    record("counts", 0, b"the", b"1", "committed"),
    record("counts", 1, b"cat", b"1", "committed"),
]

PAGE = """\
DUPLICATED: counts: cat → 1 is there twice, at counts-0@1, counts-0@4; expected once

  expected  1  ·
  found     1  1
               ^

The records of key cat (> those in question)
> counts-0@1  committed  cat → 1  transaction 7/0
> counts-0@4  committed  cat → 1  transaction 8/0

What happened (seconds; > the record itself, · its key, ! a fault)
     0.0010  worker-0  joined  generation 1
     0.0100  worker-0  fetched  lines-0@0
>    0.0110  worker-0  produced  counts-0@0..1
>    0.0120  worker-0  end_txn commit  counts-0@0..1
!    0.0125  worker-0  kill  aimed at END_TXN
!    0.2125  worker-0  restart
     0.5000  worker-1  fetched  lines-0@0
>    0.5100  worker-1  produced  counts-0@3..4
>    0.5200  worker-1  end_txn commit  counts-0@3..4
>    0.9000  reader    read  counts-0@1  cat → 1

What to look for in the app: what a record does may depend on that record and tables only.
A global, a file or the clock is gone, or another, when a record is run again after a crash
or when another worker goes on with its key: keep such state in app.Table(...). A send by a
client of your own is no part of the transaction. at_least_once repeats, at_most_once loses."""


def test_a_duplicate_is_explained_from_its_input_through_the_fault_to_both_copies() -> None:
    history = word_count()
    expectation = Expectation(outputs={"counts": (Level.SEQUENCE, project_counts())})
    anomalies = check(history, expectation)
    assert [anomaly.key for anomaly in anomalies] == [b"cat", b"the"]
    assert explain(anomalies[0], history) == PAGE
    page = verdict(anomalies, history)
    assert page.startswith("2 anomalies (2 × duplicated); the first, which may explain the others:")
    assert PAGE in page
    assert page.endswith(
        "The others\n  duplicated: counts: the → 1 is there twice, at counts-0@0, counts-0@3; "
        "expected once"
    )
    assert verdict(anomalies[:1], history) == PAGE
    assert verdict([], history) == "nothing wrong was found"


def project_counts() -> dict[tuple[int, bytes | None], list[bytes | None]]:
    found: dict[tuple[int, bytes | None], list[bytes | None]] = project(Level.SEQUENCE, COUNTED)
    return found


def test_an_input_is_followed_from_being_sent_to_its_offset_being_committed() -> None:
    anomaly = Anomaly("input lost", "it is gone", None, [place("lines", 0)])
    page = explain(anomaly, word_count())
    assert ">    0.0000  input     sent  lines-0@0  null → the cat" in page
    assert ">    0.0040  input     acknowledged  lines-0@0" in page
    assert ">    0.7500  words     offset 1 of lines-0 is committed" in page
    assert "The records (> those in question)\n> lines-0@0  committed  null → the cat" in page


def test_what_no_app_can_cause_is_said_to_be_no_fault_of_the_app() -> None:
    page = explain(Anomaly("torn transaction", "it is in pieces"), History())
    assert page.endswith("please report it as a bug of onceward.")


def test_long_values_stand_below_each_other_so_that_they_can_be_compared() -> None:
    expected = [b'{"id": 1, "total": 10.0}', b'{"id": 1, "total": 20.0}']
    found = [b'{"id": 1, "total": 10.0}', b'{"id": 1, "total": 30.0}']
    anomaly = Anomaly("wrong", "no", b"1", [], expected, found)
    assert explain(anomaly, History()).split("\n\n")[1] == (
        "Expected (-) and found (+)\n"
        '    {"id": 1, "total": 10.0}\n'
        '  - {"id": 1, "total": 20.0}\n'
        '  + {"id": 1, "total": 30.0}'
    )


def test_many_long_values_are_not_all_shown() -> None:
    expected = [b'{"id": 1, "total": %d.0}' % number for number in range(40)]
    page = explain(Anomaly("wrong", "no", b"1", [], expected, expected[:5]), History())
    lines = page.split("\n\n")[1].splitlines()
    assert lines[-1] == "    … and 16 more"
    assert len(lines) == 26


def test_long_equal_stretches_are_left_out_and_long_rows_are_wrapped() -> None:
    values = [b"%d" % number for number in range(100)]
    page = explain(Anomaly("lost", "no", b"k", [], values, values[:-1]), History())
    assert page.split("\n\n")[1] == (
        "  expected  0  1  2  …  96  97  98  99\n"
        "  found     0  1  2  …  96  97  98  ·\n"
        "                                    ^"
    )
    page = explain(Anomaly("lost", "no", b"k", [], values, []), History())
    assert max(len(line) for line in page.splitlines()) <= 100


def test_a_key_a_table_does_not_have_is_called_nothing_and_a_null_value_null() -> None:
    page = explain(Anomaly("table differs", "no", b"k", [], [b"1"], [None]), History())
    assert "found     nothing" in page
    page = explain(Anomaly("wrong", "no", b"k", [], [b"1"], [None]), History())
    assert "found     null" in page


def test_a_standstill_lists_what_waits_and_the_last_events() -> None:
    history = word_count()
    history.waiting = ["worker-1: commit: Producer.end_txn line 10", "broker: serve"]
    (anomaly,) = check(history, None)
    page = explain(anomaly, history)
    assert "2 tasks waited" in page
    assert "What waits\n  worker-1: commit: Producer.end_txn line 10\n  broker: serve" in page
    assert "     0.5200  worker-1  end_txn commit  counts-0@3..4" in page
    assert "!    9.0000  broker    kill" in page


def test_a_failed_worker_is_shown_with_its_traceback_and_what_it_did_before() -> None:
    history = word_count()
    history.events.append(Event(1000.53, "worker-1", "worker failed", "Traceback\n  in f\nOops: x"))
    (anomaly,) = check(history, None)
    assert explain(anomaly, history).split("\n\n")[1] == (
        "What happened (seconds; > the record itself, · its key, ! a fault)\n"
        "!    0.0125  worker-0  kill  aimed at END_TXN\n"
        "!    0.2125  worker-0  restart\n"
        "     0.5000  worker-1  fetched  lines-0@0\n"
        "     0.5100  worker-1  produced  counts-0@3..4\n"
        "     0.5200  worker-1  end_txn commit  counts-0@3..4\n"
        ">    0.5300  worker-1  worker failed  Traceback\n"
        "                         in f\n"
        "                       Oops: x"
    )


def test_what_another_transaction_of_the_same_host_did_is_not_shown() -> None:
    history = word_count()
    history.events += [
        Event(1000.3, "worker-0", "fetched", "after its restart", (place("other", 0),)),
        Event(1000.6, "worker-1", "fetched", "after the commit", (place("other", 1),)),
    ]
    history.events.sort(key=lambda event: event.at)
    page = explain(Anomaly("duplicated", "no", b"cat", [place("counts", 1)]), history)
    assert "after its restart" not in page
    assert "after the commit" not in page


def test_a_page_stays_short_when_a_key_has_very_many_records() -> None:
    log = [record("counts", number, b"k", b"%d" % number, "committed") for number in range(500)]
    history = History(
        log={("counts", 0): log},
        events=[
            Event(1.0 + n, "worker-0", "produced", "", (place("counts", n),)) for n in range(500)
        ],
    )
    page = explain(Anomaly("wrong", "no", b"k", [place("counts", 400)]), history)
    assert len(page.splitlines()) < 100
    assert "> counts-0@400" in page
    assert "… and 476 more of the key" in page
    assert [line for line in page.splitlines() if "produced" in line] == [
        ">  400.0000  worker-0  produced  counts-0@400"
    ]
    page = explain(Anomaly("lost", "no", b"k"), history)
    assert len(page.splitlines()) < 100
    assert "  … 440 more …" in page


def test_a_record_that_the_log_does_not_have_is_said_to_be_missing() -> None:
    page = explain(Anomaly("lost", "no", b"k", [place("counts", 3)]), History())
    assert "> counts-0@3  not in the log" in page


def test_bytes_that_are_no_text_are_shown_in_hex() -> None:
    page = explain(Anomaly("wrong", "no", b"\x00\xff", [], [b"\x00\x01"], [b""]), History())
    assert "0x0001" in page
    assert '""' in page


def test_an_input_that_was_never_acknowledged_is_on_the_page() -> None:
    history = word_count()
    history.inputs.append(Sent("lines", 0, b"k", b"late", 1000.1))
    page = explain(Anomaly("wrong", "no", b"k"), history)
    assert ">    0.1000  input     sent  lines-0  k → late  (never acknowledged)" in page
