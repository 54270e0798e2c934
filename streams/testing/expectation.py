"""What to expect of a run: what runs without faults agree on."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..errors import StreamsError
from .comparison import expectation
from .history import Expectation, History, Level

REFERENCES = 3


class ReferenceFailed(StreamsError):
    """The app fails without any fault, so there is nothing to compare with."""


class NotDeterministic(StreamsError):
    """Runs without faults differ, so nothing could be said about runs with faults."""


class References:
    """Expectations by input number, made when they are first asked for.

    ``run(name, number)`` is one run without faults; ``name`` is its seed.
    """

    def __init__(self, run: Callable[[str, int], History]) -> None:
        self._run = run
        self._known: dict[int, Expectation] = {}

    def add(self, number: int, known: Expectation) -> None:
        """One that was made elsewhere."""
        self._known[number] = known

    def missing(self, numbers: Iterable[int]) -> list[int]:
        """Those not known yet, in order."""
        return sorted(set(numbers) - set(self._known))

    def differences(self) -> dict[str, str]:
        """Topic -> an example of how runs without faults differ."""
        return {
            topic: example
            for known in self._known.values()
            for topic, example in known.differences.items()
        }

    def uncompared(self) -> list[str]:
        """Names of what the runs without faults do not agree on."""
        return sorted(
            {
                name
                for known in self._known.values()
                for results in (known.outputs, known.sinks)
                for name, (level, _) in results.items()
                if level is Level.NONE
            }
        )

    def of(self, number: int) -> Expectation:
        """Raises ReferenceFailed."""
        if number not in self._known:
            histories = [self._run(f"reference-{each}", number) for each in range(REFERENCES)]
            for history in histories:
                must_be_sound(history)
            self._known[number] = expectation(histories)
        return self._known[number]


def must_be_sound(history: History) -> None:
    """Raises ReferenceFailed."""
    failed = [event for event in history.events if event.what == "worker failed"]
    if failed:
        raise ReferenceFailed(f"without any fault {failed[0].host} failed: {failed[0].detail}")
    if history.waiting:
        listed = "\n  ".join(history.waiting)
        raise ReferenceFailed(f"without any fault the app does not come to an end:\n  {listed}")
