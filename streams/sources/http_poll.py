"""Asking an address again and again for JSON."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from ..errors import ConfigurationError
from .errors import SourceError, SourceUnavailable
from .models import typed_rows
from .rows import Rows
from .source import Given, Reader, Split

_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Status codes that pass by themselves."""


class Answer(NamedTuple):
    """What an address answered. ``etag`` None: it sent none."""

    status: int
    body: bytes
    etag: str | None = None


Get = Callable[[str, Mapping[str, str]], Answer]
"""``get(url, headers)``; raises OSError when there is no answer. Called in a thread."""


class HttpPoll(Reader):
    """Rows of the JSON that ``url`` answers with, asked for every ``every`` seconds.

    ``rows``: the field of the answer the list of rows is in (None: the answer is the list), or a
    function of the answer. What is new is told in one of three ways:

    ``after="id"``     a field of the rows, unique, that only grows. The largest one seen is sent as
                       the query parameter ``parameter``; rows up to it that come again are skipped.
    ``cursor="next"``  a field of the answer: the cursor of the next page, sent as ``parameter``.
                       The last page, which has none, is asked for again, and its known rows are
                       skipped: rows must only be added at its end.
    neither            the whole list is new whenever it changes (its ETag, or its checksum).

    ``get`` makes the requests instead of the standard library: for authentication beyond
    ``headers``, or another client. Raises ConfigurationError.
    """

    def __init__(
        self,
        url: str,
        *,
        rows: str | Callable[[Any], list[Any]] | None = None,
        after: str | None = None,
        cursor: str | None = None,
        parameter: str | None = None,
        every: float = 10.0,
        timeout: float = 10.0,
        headers: Mapping[str, str] | None = None,
        get: Get | None = None,
    ) -> None:
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise ConfigurationError(f"HttpPoll {url}: the address must begin with http(s)://")
        if after is not None and cursor is not None:
            raise ConfigurationError("HttpPoll: give after= or cursor=, not both")
        if every <= 0 or timeout <= 0:
            raise ConfigurationError("HttpPoll: every and timeout must be more than 0 seconds")
        self.url = url
        self.rows = rows
        self.after = after
        self.cursor = cursor
        self.parameter = parameter or after or cursor
        self.every = every
        self.headers = {"Accept": "application/json", **(headers or {})}
        self._get = get or _Urllib(timeout).get

    def describe(self) -> str:
        return f"address {self.url}"

    async def read(self, split: Split) -> Given:
        known: tuple[str, str | None] = ("", None)
        while True:
            position = split.position or {}
            url = self._address(position)
            headers = self.headers
            if known[0] == url and known[1] is not None:
                headers = {**headers, "If-None-Match": known[1]}
            answer = await asyncio.to_thread(self._ask, url, headers)
            has_more = False
            if answer.status != 304:
                known = (url, answer.etag)
                taken = self._taken(answer, position, split)
                if taken is not None:
                    yield taken
                    has_more = self._address(taken.position) != url
            if not has_more:
                await asyncio.sleep(self.every)

    def _address(self, position: Mapping[str, Any]) -> str:
        value = position.get("after" if self.after else "cursor")
        if value is None or self.parameter is None:
            return self.url
        sign = "&" if urllib.parse.urlsplit(self.url).query else "?"
        return self.url + sign + urllib.parse.urlencode({self.parameter: value})

    def _ask(self, url: str, headers: Mapping[str, str]) -> Answer:
        try:
            answer = self._get(url, headers)
        except OSError as error:
            raise SourceUnavailable(f"{url} does not answer: {error}") from error
        if answer.status in _PASSING:
            raise SourceUnavailable(f"{url} answers with status {answer.status}")
        if answer.status not in (200, 304):
            raise SourceError(f"{url} answers with status {answer.status}: {_begin(answer.body)}")
        return answer

    def _taken(self, answer: Answer, position: Mapping[str, Any], split: Split) -> Rows | None:
        """The new rows of an answer, None when nothing changed."""
        try:
            content = msgspec.json.decode(answer.body)
        except msgspec.DecodeError as error:
            raise SourceError(
                f"{self.url} answers with what is no JSON ({error}): {_begin(answer.body)}"
            ) from error
        found = self._rows_in(content)
        if self.after is not None:
            found, later = self._newer(found, position.get("after"))
        elif self.cursor is not None:
            found, later = self._rest(found, content, position)
        else:
            later = {"version": answer.etag or f"crc32 {zlib.crc32(answer.body)}"}
        if later == position:
            return None

        def place(index: int) -> str:
            return f"{self.url}: row {shown_row(found[index])}"

        return typed_rows(split.topic, found, later, place)

    def _rows_in(self, content: Any) -> list[Any]:
        try:
            found = (
                content
                if self.rows is None
                else (content[self.rows] if isinstance(self.rows, str) else self.rows(content))
            )
        except (KeyError, TypeError) as error:
            raise SourceError(f"{self.url}: the answer has no {self.rows!r}") from error
        if not isinstance(found, list):
            raise SourceError(f"{self.url}: rows must be a list, not {type(found).__name__}")
        return found

    def _newer(self, found: list[Any], last: Any) -> tuple[list[Any], dict[str, Any]]:
        field = self.after
        try:
            new = [row for row in found if last is None or row[field] > last]
            new.sort(key=lambda row: row[field])
            later = new[-1][field] if new else last
        except (KeyError, TypeError) as error:
            raise SourceError(
                f"{self.url}: every row must have a {field!r} that can be compared: {error}"
            ) from error
        return new, {} if later is None else {"after": later}

    def _rest(
        self, found: list[Any], content: Any, position: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        known = position.get("taken", 0)
        if len(found) < known:
            raise SourceError(
                f"{self.url}: the last page had {known} rows and has {len(found)} now: which are "
                "new cannot be told; use after= with a field that grows"
            )
        here = position.get("cursor")
        following = content.get(self.cursor) if isinstance(content, dict) else None
        if following is None or following == here:
            return found[known:], {"cursor": here, "taken": len(found)}
        return found[known:], {"cursor": following, "taken": 0}


class _Urllib:
    """``Get`` with the standard library."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout

    def get(self, url: str, headers: Mapping[str, str]) -> Answer:
        request = urllib.request.Request(url, headers=dict(headers))
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as response:
                return Answer(response.status, response.read(), response.headers.get("ETag"))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.read(), error.headers.get("ETag"))


def shown_row(row: Any) -> str:
    """A row in a message, cut off where it is long."""
    return _begin(msgspec.json.encode(row))


def _begin(body: bytes) -> str:
    text = body[:200].decode("utf-8", "replace")
    return repr(text if len(body) <= 200 else f"{text}...")
