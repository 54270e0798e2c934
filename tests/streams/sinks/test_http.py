"""The HTTP sink against a service on the loopback that fails in every way."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from onceward.broker.client import TopicPartition
from onceward.streams import App, ConfigurationError, Stream
from onceward.streams.engine.block import Block
from onceward.streams.sinks import SinkError, SinkUnavailable, Strength
from onceward.streams.sinks.effects import Batch, Effects
from onceward.streams.sinks.http import HttpSink

from ..workers import make_app, until, worker
from .etl import Order, fail_once, is_done, kill, make_cluster
from .http_service import OK, Asked, Said, Service, serving


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    made = Service()
    async with serving(made):
        yield made


def batch(sink: HttpSink, *values: Any, dead_letters: bool = False, partitions: int = 1) -> Batch:
    """One record per value, over partitions in turn; a tuple is a key and a value."""
    size = len(values)
    effects = Effects()
    blocks = [
        Block(TopicPartition("orders", n), [None] * size, [None] * size, list(range(size)),
              [0] * size, None, size)
        for n in range(partitions)
    ]  # fmt: skip
    for index, value in enumerate(values):
        key, value = value if isinstance(value, tuple) else (None, value)
        encoded = sink.encode(value, key, None)  # type: ignore[arg-type]
        effects.add(encoded, blocks[index % partitions], index // partitions, "etl")
    return Batch("app", sink.describe(), effects.take(), dead_letters)


async def deliver(sink: HttpSink, *values: Any, **options: Any) -> Batch:
    await sink.start()
    made = batch(sink, *values, **options)
    try:
        await sink.deliver(made)
    finally:
        await sink.close()
    return made


# requests


async def test_every_row_is_a_request_with_the_key_of_its_effect(service: Service) -> None:
    sink = HttpSink(service.url, token="secret", headers={"X-Tenant": "t1"})
    assert sink.strength is Strength.IDEMPOTENT_BY_KEY
    at = datetime(2026, 1, 2, tzinfo=UTC)
    await deliver(sink, {"id": 1, "at": at}, Order(id=2, amount=3))
    assert [asked.key for asked in service.asked] == ["app:orders:0:0:0", "app:orders:0:1:0"]
    assert list(service.kept.values()) == [
        {"id": 1, "at": "2026-01-02T00:00:00Z"},
        {"id": 2, "amount": 3},
    ]
    first = service.asked[0]
    assert (first.method, first.path) == ("POST", "/orders")
    assert first.headers["authorization"] == "Bearer secret"
    assert first.headers["x-tenant"] == "t1"
    assert first.headers["content-type"] == "application/json"
    assert service.connections == 1, "it is kept"


async def test_put_addresses_a_row_and_none_deletes_it(service: Service) -> None:
    sink = HttpSink(service.url + "/{id}", method="PUT", key="id", key_header="X-Key")
    service.keep = lambda asked: None  # type: ignore[method-assign]
    service.respond = lambda asked: Said(404) if asked.method == "DELETE" else OK
    await deliver(sink, {"id": "a/b ?", "n": 1}, ("a/b ?", None))
    assert [(asked.method, asked.path) for asked in service.asked] == [
        ("PUT", "/orders/a%2Fb%20%3F"),
        ("DELETE", "/orders/a%2Fb%20%3F"),
    ]
    assert service.asked[0].headers["x-key"] == "app:orders:0:0:0"
    for bad in ("..", ".", ""):
        with pytest.raises(ValueError, match="'id' would change the address"):
            batch(sink, {"id": bad})
    with pytest.raises(ValueError, match="None deletes, which needs method='PUT'"):
        batch(HttpSink(service.url, key="id"), ("a", None))


@pytest.mark.parametrize(("kind", "limits"), [
    ("array", {"max_rows": 3}), ("jsonl", {"max_rows": 3}), ("jsonl", {"max_bytes": 130}),
])  # fmt: skip
async def test_bulk_bodies_are_bounded_and_rows_have_their_keys(
    service: Service, kind: str, limits: dict[str, int]
) -> None:
    sink = HttpSink(service.url, batch=kind, key_field="key", **limits)  # type: ignore[arg-type]
    assert sink.strength is Strength.IDEMPOTENT_BY_KEY
    await deliver(sink, *({"id": n} for n in range(10)))
    assert len(service.asked) == 4
    assert service.kept == {f"app:orders:0:{n}:0": {"id": n} for n in range(10)}
    keys = [asked.key for asked in service.asked]
    assert len(set(keys)) == 4
    await deliver(sink, *({"id": n} for n in range(10)))
    assert [asked.key for asked in service.asked[4:]] == keys, "of the same effects the same"
    with pytest.raises(ValueError, match="a row has the key_field 'key'"):
        batch(sink, {"key": 1})


def test_a_bulk_body_without_keys_of_its_rows_is_at_least_once() -> None:
    """After a crash bodies hold other rows, so their own keys are new."""
    assert HttpSink("http://host", batch="array").strength is Strength.AT_LEAST_ONCE


@pytest.mark.parametrize("order", ["partition", "key", "none"])
async def test_order_is_kept_as_promised_and_few_requests_are_in_flight(
    service: Service, order: str
) -> None:
    sink = HttpSink(service.url, key="id", order=order, in_flight=3)
    service.may_answer.clear()
    rows = [{"id": n // 2 % 7, "partition": n % 5, "n": n} for n in range(60)]
    delivering = asyncio.create_task(deliver(sink, *rows, partitions=5))
    await until(lambda: len(service.busy) == 3)
    await asyncio.sleep(0.02)
    service.may_answer.set()
    await delivering
    assert max(map(len, service.together)) == 3
    sent = [json.loads(asked.body) for asked in service.asked]
    assert len(sent) == 60
    field = {"partition": "partition", "key": "id"}.get(order)
    if field is not None:
        for asked in service.together:
            busy_with = [json.loads(each.body)[field] for each in asked]
            assert len(busy_with) == len(set(busy_with))
        for value in range(7):
            numbers = [row["n"] for row in sent if row[field] == value]
            assert numbers == sorted(numbers)


# answers


@pytest.mark.parametrize("said", [
    Said(503), Said(429), Said(408), Said(502, body=b"<html>"), Said(500), Said(409),
    Said(None), Said(None, is_kept=False), Said(None, is_cut=True),
])  # fmt: skip
async def test_what_passes_is_tried_again_with_the_same_keys(service: Service, said: Said) -> None:
    answers = [OK, said]
    service.respond = lambda asked: answers.pop(0) if answers else OK
    sink = HttpSink(service.url)
    rows = [{"id": n} for n in range(4)]
    with pytest.raises(SinkUnavailable, match=r"sink '127.0.0.1' \(POST http://.*/orders\) "):
        await deliver(sink, *rows)
    assert len(service.asked) == 2, "nothing after it"
    await deliver(sink, *rows)
    assert service.kept == {f"app:orders:0:{n}:0": {"id": n} for n in range(4)}


async def test_a_service_that_is_not_there_or_says_nothing_is_unavailable(
    service: Service,
) -> None:
    with pytest.raises(SinkUnavailable, match="does not answer: ConnectError"):
        await deliver(HttpSink("http://127.0.0.1:1/x"), {"id": 1})
    service.may_answer.clear()
    with pytest.raises(SinkUnavailable, match=r"did not answer within 0\.05 s"):
        await deliver(HttpSink(service.url, timeout=0.05), {"id": 1})


@pytest.mark.parametrize("headers", [
    {"Retry-After": "1"},
    {"Date": "Fri, 02 Jan 2026 00:00:00 GMT", "Retry-After": "Fri, 02 Jan 2026 00:00:01 GMT"},
])  # fmt: skip
async def test_no_request_is_sent_before_the_service_allows_it(
    service: Service, headers: dict[str, str]
) -> None:
    answers = [Said(429, headers)]
    service.respond = lambda asked: answers.pop() if answers else OK
    sink = HttpSink(service.url, timeout=0.5)
    clock = asyncio.get_running_loop().time
    began = clock()
    with pytest.raises(SinkUnavailable, match="status 429"):
        await deliver(sink, {"id": 1})
    with pytest.raises(SinkUnavailable, match="asks for no requests for another"):
        await deliver(sink, {"id": 1})
    assert len(service.asked) == 1
    await deliver(sink, {"id": 1})
    assert clock() - began > 0.9
    assert len(service.kept) == 1


async def test_a_row_that_makes_the_service_fail_is_refused_in_the_end(service: Service) -> None:
    service.respond = lambda asked: Said(500, body=b"boom") if b"13" in asked.body else OK
    sink = HttpSink(service.url, batch="jsonl", key_field="key", patience=0.05)
    rows = [{"id": n} for n in range(20)]
    with pytest.raises(SinkUnavailable, match="status 500: 'boom'"):
        await deliver(sink, *rows, dead_letters=True)
    await asyncio.sleep(0.06)
    delivered = await deliver(sink, *rows, dead_letters=True)
    assert [(refusal.at, refusal.reason) for refusal in delivered.refused] == [
        (13, "status 500: 'boom'")
    ]
    assert len(service.kept) == 19


@pytest.mark.parametrize("kind", [None, "array", "jsonl"])
async def test_refused_rows_are_named_and_the_others_land(
    service: Service, kind: str | None
) -> None:
    def respond(asked: Asked) -> Said:
        is_bad = b'"id":3' in asked.body or b'"id":8' in asked.body
        return Said(422, body=b"no such order " + b"x" * 1000) if is_bad else OK

    service.respond = respond
    field = None if kind is None else "key"
    sink = HttpSink(service.url, batch=kind, key_field=field)
    rows = [*({"id": n} for n in range(10)), {"id": "\ud800"}]
    with pytest.raises(SinkError, match=r"orders-0 at offset (3|10): .*Others of this commit may"):
        await deliver(sink, *rows)
    service.kept.clear()
    delivered = await deliver(sink, *rows, dead_letters=True)
    assert [refusal.at for refusal in delivered.refused] == [3, 8, 10]
    reason = delivered.refused[0].reason
    assert reason.startswith("status 422: 'no such order xxx")
    assert len(reason) < 250
    assert len(service.kept) == 8


@pytest.mark.parametrize("status", [301, 401, 403, 404, 405])
async def test_what_is_wrong_with_the_sink_stops_the_worker_and_blames_no_row(
    service: Service, status: int
) -> None:
    service.respond = lambda asked: Said(status, body=asked.headers["authorization"].encode())
    sink = HttpSink(f"{service.url}?api_key=hidden", token="s3cret")
    with pytest.raises(SinkError, match=f"answers with status {status}: 'Bearer ...'") as caught:
        await deliver(sink, {"id": 1}, dead_letters=True)
    assert "s3cret" not in str(caught.value)
    assert "hidden" not in str(caught.value)


async def test_a_conflict_means_what_is_declared(service: Service) -> None:
    service.respond = lambda asked: Said(409)
    await deliver(HttpSink(service.url, conflict="done"), {"id": 1})
    refusing = HttpSink(service.url, conflict="refuse")
    delivered = await deliver(refusing, {"id": 1}, dead_letters=True)
    assert len(delivered.refused) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "ftp://host"}, r"must be http\(s\)://host"),
        ({"url": "http://host:99999/"}, r"must be http\(s\)://host"),
        ({"url": "http://[::1/"}, r"must be http\(s\)://host"),
        ({"url": "http://host/\x01"}, "the address cannot be used"),
        ({"proxy": "ftp://me:pw@proxy"}, "the proxy's address cannot be used"),
        ({"proxy": "me:pw@proxy"}, "the proxy's address cannot be used"),
        ({"url": "http://me:pw@host"}, "a password does not belong in the address"),
        ({"url": "http://host/{id}"}, "'id' in the address must be in key="),
        ({"url": "http://host/{id}", "key": "id", "batch": "array"}, "a bulk body has one address"),
        ({"method": "GET"}, "method must be POST, PUT or PATCH, not 'GET'"),
        ({"batch": "xml"}, "batch must be array, jsonl or None"),
        ({"in_flight": 0}, "in_flight and timeout must be more than 0"),
        ({"key_field": "k"}, "key_field= is for bulk bodies"),
        ({"order": "key"}, "order='key' needs key="),
        ({"order": "random"}, "order"),
        ({"token": "a\nb"}, "a character, or a space at an end, that none may have"),
        ({"token": "from a file "}, "a character, or a space at an end, that none may have"),
        ({"headers": {"X Tenant": "1"}}, "a header's name has a character that none may have"),
        ({"key_header": ""}, "a header's name has a character that none may have"),
        ({"headers": {"Content-Length": "1"}}, "the header 'content-length' is not yours to set"),
        ({"key_header": "Authorization", "token": "t"}, "would replace the header 'Authorization'"),
    ],
)
def test_what_makes_no_sense_is_said(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        HttpSink(**{"url": "http://host/x", **options})
    assert "a\nb" not in str(caught.value)
    assert ":pw" not in str(caught.value)


async def test_an_address_that_cannot_be_is_the_rows_fault(service: Service) -> None:
    service.keep = lambda asked: None  # type: ignore[method-assign]
    sink = HttpSink(service.url + "/{id}", method="PUT", key="id")
    rows = [{"id": "x" * 70_000}, ("\ud800", None), {"id": 1}]
    with pytest.raises(SinkError, match=r"orders-0 at offset 0: an address of 70\d{3} characters"):
        await deliver(sink, *rows)
    delivered = await deliver(sink, *rows, dead_letters=True)
    assert [refusal.at for refusal in delivered.refused] == [0, 1]
    assert "surrogates not allowed" in delivered.refused[1].reason
    assert [asked.path for asked in service.asked] == ["/orders/1"]


async def test_what_fails_says_for_which_record(service: Service) -> None:
    service.respond = lambda asked: Said(503)
    with pytest.raises(SinkUnavailable, match=r"503: '\{\}' \(asked for orders-0 at offset 0\)"):
        await deliver(HttpSink(service.url), {"id": 1})
    bulk = HttpSink(service.url, batch="array", key_field="key")
    with pytest.raises(SinkUnavailable, match=r"\(asked for orders-0 at offset 0 and 2 more\)"):
        await deliver(bulk, {"id": 1}, {"id": 2}, {"id": 3})
    service.respond = lambda asked: Said(307, {"Location": "https://new.host/in?token=hidden"})
    with pytest.raises(SinkError, match=r"307: it leads to https://new\.host/in ") as caught:
        await deliver(HttpSink(service.url), {"id": 1})
    assert "hidden" not in str(caught.value)


async def test_what_nobody_has_thought_of_has_a_sentence_too(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HttpSink, "_request_key", lambda sink, parts: parts[0].key.odd)
    with pytest.raises(SinkError, match=r"AttributeError.*\(asked for orders-0 at offset 0\)"):
        await deliver(HttpSink(service.url), {"id": 1})


@pytest.mark.parametrize(("answer", "error"), [
    (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nabc", "RemoteProtocolError"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "RemoteProtocolError"),
    (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000 + b"\r\n\r\n", "RemoteProtocolError"),
    (b"SSH-2.0-x\r\n", "RemoteProtocolError"),
    (b"HTTP/1.1 100 Continue\r\n\r\n", "did not answer within"),
    (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 100_000, None),
])  # fmt: skip
async def test_answers_that_are_none_do_not_count_and_endless_ones_end(
    answer: bytes, error: str | None
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        if error is None or error.startswith("did"):
            await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        sink = HttpSink(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", timeout=0.5)
        if error is None:
            await deliver(sink, {"id": 1})
        else:
            with pytest.raises(SinkUnavailable, match=error):
                await deliver(sink, {"id": 1})


async def test_a_proxy_that_wants_a_password_stops_the_worker() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        proxy = f"http://me:s3cret@127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(SinkError, match="ProxyError: 407 Proxy Auth") as caught:
            await deliver(HttpSink("https://host.invalid/", proxy=proxy), {"id": 1})
    assert "s3cret" not in str(caught.value)


def test_httpx_is_asked_for_when_it_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'onceward\[http\]'"):
        HttpSink("http://host")


# whole workers


def web_app(tmp_path: Path, service: Service, **options: Any) -> App:
    app = make_app(tmp_path)
    sink = HttpSink(service.url, **options)

    @app.agent(app.topic("orders", value_type=Order, partitions=2), sink=[sink])
    async def etl(stream: Stream[Order]) -> AsyncIterator[Order]:
        async for order in stream:
            yield order

    return app


def kept_ids(service: Service) -> list[int]:
    return sorted(row["id"] for row in service.kept.values())


@pytest.mark.parametrize("options", [{}, {"batch": "array", "key_field": "key", "max_rows": 7}])
async def test_every_effect_is_there_once_whatever_the_service_does(
    tmp_path: Path, service: Service, options: dict[str, Any]
) -> None:
    failed = 0
    rng = random.Random(7)
    bad = [Said(503), Said(500), Said(429, {"Retry-After": "0"}), Said(409), Said(None),
           Said(None, is_kept=False), Said(None, is_cut=True)]  # fmt: skip

    def respond(asked: Asked) -> Said:
        nonlocal failed
        if failed >= 12 or rng.random() > 0.3:
            return OK
        failed += 1
        return rng.choice(bad)

    service.respond = respond
    cluster = make_cluster(60, batch_records=9)
    cluster.injector = fail_once("commit", "before")
    async with worker(web_app(tmp_path, service, **options), cluster) as running:
        await until(is_done(cluster), running, timeout=30)
    assert kept_ids(service) == list(range(60))
    assert failed > 5
    assert service.repeated > 10, "the keys were needed"


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_worker_killed_around_its_kafka_commit_has_a_right_heir(
    tmp_path: Path, service: Service, when: str
) -> None:
    cluster = make_cluster(30)
    cluster.injector = fail_once("commit", when)
    async with worker(web_app(tmp_path, service), cluster) as first:
        await until(lambda: "commit" in cluster.calls, first)
        await kill(first)
    async with worker(web_app(tmp_path, service), cluster) as second:
        await until(is_done(cluster), second, timeout=20)
    assert kept_ids(service) == list(range(30))


async def test_what_the_service_refuses_is_dead_lettered_once(
    tmp_path: Path, service: Service
) -> None:
    service.respond = lambda asked: Said(400) if b'"id":7,' in asked.body else OK
    cluster = make_cluster(20)
    cluster.injector = fail_once("commit", "before")
    app = web_app(tmp_path, service, on_error="dead_letter", name="web")
    async with worker(app, cluster) as running:
        await until(is_done(cluster), running, timeout=20)
    (letter,) = cluster.read("app-dead-letter")
    assert dict(letter.headers)["onceward-row"] == b'{"id":7,"amount":7}'
    assert kept_ids(service) == [n for n in range(20) if n != 7]
