"""What a worker writes to a sink, counted, and said once a minute while it writes. Pure."""

from __future__ import annotations

_REPORT_S = 60.0


class SinkProgress:
    """Counters since the worker started: ``rows`` taken and ``refused`` by the sink, ``commits``.

    Times are in seconds of any clock.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.refused = 0
        self.commits = 0
        self._since: float | None = None
        self._told_rows = 0
        self._told_refused = 0

    def committed(self, rows: int, refused: int) -> None:
        self.rows += rows
        self.refused += refused
        self.commits += 1

    def report(self, now: float, lag: int) -> str | None:
        """A sentence, if one is due. ``lag`` is in records."""
        if self._since is None:
            self._since = now
        lasted = now - self._since
        if lasted < _REPORT_S:
            return None
        rows, refused = self.rows - self._told_rows, self.refused - self._told_refused
        self._since, self._told_rows, self._told_refused = now, self.rows, self.refused
        bad = f", {refused} refused" if refused else ""
        return (
            f"{rows} rows in {lasted:.0f} s ({rows / lasted:.0f}/s){bad}, "
            f"{self.rows} since the start, {lag} records to go"
        )
