"""Polling an address, against a made-up one and a real server."""

from __future__ import annotations

import json
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from onceward.streams import App, ConfigurationError
from onceward.streams.sources import HttpPoll, SourceError
from onceward.streams.sources.http_poll import Answer
from onceward.streams.testing import AppDriver

Respond = Callable[[dict[str, str], Mapping[str, str]], Answer]


class Api:
    """An address: ``respond`` makes answers of parameters and headers."""

    def __init__(self, respond: Respond) -> None:
        self.respond = respond
        self.asked: list[str] = []

    def get(self, url: str, headers: Mapping[str, str]) -> Answer:
        self.asked.append(url.removeprefix("http://api"))
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(url).query))
        return self.respond(query, headers)


def answer(content: Any, **more: Any) -> Answer:
    return Answer(200, json.dumps(content).encode(), **more)


def make_app(api: Api, **options: Any) -> App:
    app = App("poller", topic_partitions=1)
    reader = HttpPoll("http://api/orders", **{"every": 10.0, "get": api.get, **options})
    app.source(app.topic("orders"), reader)
    return app


def values(driver: AppDriver) -> list[Any]:
    return [record.value for record in driver.output("orders")]


def test_rows_behind_the_last_one_are_asked_for_and_known_ones_skipped() -> None:
    rows = [{"id": n} for n in range(5)]

    def respond(query: dict[str, str], _: Mapping[str, str]) -> Answer:
        since = int(query.get("since", -1))
        return answer({"items": [row for row in rows if row["id"] >= since][:3]})

    api = Api(respond)
    with AppDriver(make_app(api, rows="items", after="id", parameter="since")) as driver:
        driver.run_source("orders")
        assert values(driver) == rows
        assert api.asked == ["/orders", "/orders?since=2", "/orders?since=4"]
        rows.append({"id": 7})
        driver.advance(11)
        assert values(driver) == rows
        driver.crash()
        driver.run_source("orders")
        assert values(driver) == rows
        assert api.asked[-1] == "/orders?since=7"


def test_pages_are_followed_by_their_cursor_and_the_last_one_may_grow() -> None:
    pages = {"": ([1, 2], "b"), "b": ([3], None)}

    def respond(query: dict[str, str], _: Mapping[str, str]) -> Answer:
        rows, following = pages[query.get("cursor", "")]
        return answer({"rows": rows, "next": following})

    api = Api(respond)
    app = make_app(api, rows=lambda content: content["rows"], cursor="next", parameter="cursor")
    with AppDriver(app) as driver:
        driver.run_source("orders")
        assert values(driver) == [1, 2, 3]
        pages["b"] = ([3, 4], None)
        driver.advance(11)
        driver.crash()
        driver.run_source("orders")
        pages["b"], pages["c"] = ([3, 4, 5], "c"), ([6], None)
        driver.advance(11)
        assert values(driver) == [1, 2, 3, 4, 5, 6]
        pages["c"] = ([], None)
        with pytest.raises(SourceError, match="had 1 rows and has 0 now"):
            driver.advance(11)


def test_a_whole_list_is_new_when_it_changed() -> None:
    content = [["a", "b"]]
    tags: list[str | None] = []

    def respond(_: dict[str, str], headers: Mapping[str, str]) -> Answer:
        tags.append(headers.get("If-None-Match"))
        tag = str(content[0])
        return Answer(304, b"") if tags[-1] == tag else answer(content[0], etag=tag)

    with AppDriver(make_app(Api(respond))) as driver:
        driver.run_source("orders")
        driver.advance(11)
        assert values(driver) == ["a", "b"]
        driver.crash()
        driver.run_source("orders")
        assert values(driver) == ["a", "b"]
        content[0] = ["c"]
        driver.advance(11)
        assert values(driver) == ["a", "b", "c"]
    assert tags == [None, "['a', 'b']", None, "['a', 'b']"]


@pytest.mark.parametrize("failure", [OSError("no route"), Answer(503, b""), Answer(429, b"")])
def test_an_address_that_is_away_is_asked_again(failure: Any) -> None:
    left = [failure]

    def respond(_: dict[str, str], __: Mapping[str, str]) -> Answer:
        if left:
            what = left.pop()
            if isinstance(what, OSError):
                raise what
            return Answer(*what)
        return answer([1])

    with AppDriver(make_app(Api(respond))) as driver:
        driver.run_source("orders")
        driver.advance(1)
        assert values(driver) == [1]


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (Answer(404, b"nothing here"), "status 404: 'nothing here'"),
        (Answer(200, b"<html>"), "no JSON .*<html>"),
        (answer({"rows": 1}), "has no 'items'"),
        (answer({"items": {}}), "must be a list, not dict"),
        (answer({"items": [{"no": 1}]}), "every row must have a 'id'"),
    ],
)
def test_an_answer_of_no_use_stops_the_worker_in_one_sentence(
    given: Answer, complaint: str
) -> None:
    app = make_app(Api(lambda *_: given), rows="items", after="id")
    with AppDriver(app) as driver, pytest.raises(SourceError, match=complaint):
        driver.run_source("orders")


def test_what_cannot_be_asked_is_refused_when_it_is_declared() -> None:
    for options, complaint in [
        ({"url": "file:///etc/passwd"}, "http"),
        ({"url": "http://x", "after": "a", "cursor": "b"}, "not both"),
        ({"url": "http://x", "every": 0}, "more than 0"),
    ]:
        with pytest.raises(ConfigurationError, match=complaint):
            HttpPoll(**options)  # type: ignore[arg-type]


@contextmanager
def serving(content: bytes) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status = 404 if self.path.startswith("/no") else 200
            self.send_response(304 if self.headers["If-None-Match"] == "v1" else status)
            self.send_header("ETag", "v1")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def test_a_real_server_is_asked_with_the_standard_library() -> None:
    with serving(b'[{"id": 1}]') as url:
        app = App("poller")
        app.source(app.topic("orders"), HttpPoll(f"{url}/orders", every=1.0))
        app.source(app.topic("others"), HttpPoll(f"{url}/no", every=1.0))
        with AppDriver(app) as driver:
            driver.run_source("orders")
            driver.advance(3)
            assert values(driver) == [{"id": 1}]
            with pytest.raises(SourceError, match="status 404"):
                driver.run_source("others")
