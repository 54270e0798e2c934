"""What an HTTP service's answer means for the rows in the request. Pure."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple

MOST_READ: Final = 64 * 1024
_SHOWN: Final = 200
_LONGEST_PAUSE_S: Final = 3600.0
_PASSING: Final = frozenset({408, 425, 429, 502, 503, 504})
_OF_THE_SINK: Final = frozenset({401, 403, 405, 407})


class Conflict(enum.StrEnum):
    """What status 409 means: the service is still busy with the same key, has the row already, or
    does not take it."""

    RETRY = "retry"
    DONE = "done"
    REFUSE = "refuse"


class Verdict(enum.Enum):
    """LATER_WITHIN_REASON: for ``patience``, then it is the row's fault. WRONG: the sink's."""

    DONE = enum.auto()
    LATER = enum.auto()
    LATER_WITHIN_REASON = enum.auto()
    REFUSED = enum.auto()
    WRONG = enum.auto()


class Answer(NamedTuple):
    """``body``: the first ``MOST_READ`` bytes of it, or a little more."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def shown(self, secrets: Sequence[str]) -> str:
        """The beginning, without secrets that a service sends back."""
        text = self.body.decode("utf-8", "replace")
        target = self.headers.get("location") if 300 <= self.status < 400 else None
        if target is not None:
            text = f"it leads to {re.split('[?#]', target)[0]}"
        for secret in secrets:
            text = text.replace(secret, "***")
        text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        return f"status {self.status}: {text if target is not None else repr(text)}"


def verdict(status: int, conflict: Conflict, *, is_deletion: bool, has_fields: bool) -> Verdict:
    """``has_fields``: the row is part of the address, so that 404 may be its fault."""
    if 200 <= status < 300:
        return Verdict.DONE
    if is_deletion and status in (404, 410):
        return Verdict.DONE
    if status == 409 and conflict is not Conflict.REFUSE:
        return Verdict.DONE if conflict is Conflict.DONE else Verdict.LATER_WITHIN_REASON
    if status in _PASSING:
        return Verdict.LATER
    if status >= 500:
        return Verdict.LATER_WITHIN_REASON
    if status < 400 or status in _OF_THE_SINK or (status == 404 and not has_fields):
        return Verdict.WRONG
    return Verdict.REFUSED


def pause(headers: Mapping[str, str]) -> float:
    """For how many seconds the service asks for no requests, at most an hour. A date counts from
    the answer's."""
    asked = headers.get("retry-after", "")
    if re.fullmatch(r"[0-9]{1,18}", asked):
        seconds = float(asked)
    else:
        try:
            until, now = (parsedate_to_datetime(text) for text in (asked, headers.get("date", "")))
            seconds = (until - now).total_seconds()
        except (ValueError, TypeError, OverflowError):
            return 0.0
    return max(0.0, min(seconds, _LONGEST_PAUSE_S))
