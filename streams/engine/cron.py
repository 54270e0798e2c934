"""Crontab expressions: five fields, the next matching minute. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from ..errors import ConfigurationError

_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 7))
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTHS = (
    *("jan", "feb", "mar", "apr", "may", "jun"),
    *("jul", "aug", "sep", "oct", "nov", "dec"),
)
_HORIZON_DAYS = 366 * 8


@dataclass(frozen=True, slots=True)
class Crontab:
    """``minute hour day month weekday``; lists, ranges, steps and English names as in crontab(5).

    As there, a record of both day and weekday matches when either does.
    """

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool
    timezone: tzinfo

    @classmethod
    def parse(cls, text: str, timezone: tzinfo | None = None) -> Crontab:
        """Raises ConfigurationError."""
        fields = text.split()
        if len(fields) != len(_FIELDS):
            raise ConfigurationError(f"crontab {text!r} needs 5 fields, it has {len(fields)}")
        minute, hour, day, month, weekday = (
            _values(field, name, low, high, text)
            for field, (name, low, high) in zip(fields, _FIELDS, strict=True)
        )
        either = not fields[2].startswith("*") and not fields[4].startswith("*")
        weekdays = frozenset(value % 7 for value in weekday)
        return cls(minute, hour, day, month, weekdays, either, timezone or UTC)

    def next_after(self, seconds: float) -> float:
        """The first matching minute after ``seconds`` (since the epoch). Raises
        ConfigurationError."""
        start = datetime.fromtimestamp(seconds, self.timezone).replace(second=0, microsecond=0)
        moment = start + timedelta(minutes=1)
        for _ in range(_HORIZON_DAYS):
            if self._day_matches(moment):
                end = moment.date()
                while moment.date() == end:
                    if moment.hour in self.hours and moment.minute in self.minutes:
                        return moment.timestamp()
                    moment += timedelta(minutes=1)
            else:
                moment = moment.replace(hour=0, minute=0) + timedelta(days=1)
        raise ConfigurationError("this crontab never matches")

    def _day_matches(self, moment: datetime) -> bool:
        if moment.month not in self.months:
            return False
        on_day = moment.day in self.days
        on_weekday = moment.isoweekday() % 7 in self.weekdays
        return on_day or on_weekday if self.either_day else on_day and on_weekday


def _values(field: str, name: str, low: int, high: int, text: str) -> frozenset[int]:
    found: set[int] = set()
    for part in field.split(","):
        body, _, step = part.partition("/")
        first, _, last = body.partition("-")
        try:
            if body == "*":
                start, stop = low, high
            else:
                start = _number(first, name)
                stop = _number(last, name) if last else (high if step else start)
            every = int(step) if step else 1
        except ValueError:
            raise ConfigurationError(f"crontab {text!r}: {name} {part!r} is no number") from None
        if not low <= start <= stop <= high or every < 1:
            raise ConfigurationError(f"crontab {text!r}: {name} {part!r} is outside {low}-{high}")
        found.update(range(start, stop + 1, every))
    return frozenset(found)


def _number(text: str, name: str) -> int:
    word = text.lower()[:3]
    if name == "weekday" and word in _DAYS:
        return _DAYS.index(word)
    if name == "month" and word in _MONTHS:
        return _MONTHS.index(word) + 1
    return int(text)
