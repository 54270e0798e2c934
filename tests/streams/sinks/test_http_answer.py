"""What answers of an HTTP service mean."""

from __future__ import annotations

import pytest

from onceward.streams.sinks.http_answer import Answer, Conflict, Verdict, pause, verdict

NOON = "Fri, 02 Jan 2026 12:00:00 GMT"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 0),
        ({"retry-after": "5"}, 5),
        ({"retry-after": "999999999"}, 3600),
        ({"retry-after": "-5"}, 0),
        ({"retry-after": "soon"}, 0),
        ({"retry-after": NOON}, 0),
        ({"retry-after": "Fri, 02 Jan 2026 12:00:07 GMT", "date": NOON}, 7),
        ({"retry-after": "Fri, 02 Jan 2026 11:00:00 GMT", "date": NOON}, 0),
        ({"retry-after": "Fri, 02 Jan 2026 12:00:07", "date": NOON}, 0),
        ({"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT", "date": NOON}, 3600),
        ({"retry-after": "Fri, 02 Jan 999999999999 00:00:00 GMT", "date": NOON}, 0),
    ],
)
def test_a_pause_is_what_was_asked_for_and_has_an_end(
    headers: dict[str, str], seconds: float
) -> None:
    assert pause(headers) == seconds


@pytest.mark.parametrize(
    ("status", "meaning"),
    [
        (200, Verdict.DONE),
        (299, Verdict.DONE),
        (301, Verdict.WRONG),
        (400, Verdict.REFUSED),
        (401, Verdict.WRONG),
        (404, Verdict.WRONG),
        (409, Verdict.LATER_WITHIN_REASON),
        (422, Verdict.REFUSED),
        (429, Verdict.LATER),
        (500, Verdict.LATER_WITHIN_REASON),
        (503, Verdict.LATER),
        (700, Verdict.LATER_WITHIN_REASON),
    ],
)
def test_a_status_means(status: int, meaning: Verdict) -> None:
    assert verdict(status, Conflict.RETRY, is_deletion=False, has_fields=False) is meaning


def test_a_row_in_the_address_may_be_gone_or_not_be_known() -> None:
    for status in (404, 410):
        for_row = verdict(status, Conflict.RETRY, is_deletion=False, has_fields=True)
        assert for_row is Verdict.REFUSED
        assert verdict(status, Conflict.RETRY, is_deletion=True, has_fields=True) is Verdict.DONE


def test_an_answer_is_shown_short_and_without_secrets() -> None:
    shown = Answer(400, {}, b"no, token abc\xff " + b"x" * 1000).shown(["abc"])
    assert shown.startswith("status 400: 'no, token ***\ufffd xxx")
    assert len(shown) < 230
    moved = Answer(302, {"location": "http://h[/a?key=1#b"}, b"").shown(["h["])
    assert moved == "status 302: it leads to http://***/a"
