"""Frames named as they begin, however the stream is chopped."""

from __future__ import annotations

from random import Random

from onceward.broker.protocol.api import ApiKey
from onceward.streams.testing.frames import FrameWatch


def request(key: ApiKey, correlation_id: int, size: int = 20) -> bytes:
    body = int(key).to_bytes(2, "big") + b"\0\3" + correlation_id.to_bytes(4, "big") + bytes(size)
    return len(body).to_bytes(4, "big") + body


def answer(correlation_id: int, size: int = 5) -> bytes:
    body = correlation_id.to_bytes(4, "big") + bytes(size)
    return len(body).to_bytes(4, "big") + body


def chopped(data: bytes, rng: Random) -> list[bytes]:
    pieces = []
    while data:
        size = rng.randint(1, 30)
        pieces.append(data[:size])
        data = data[size:]
    return pieces


def test_requests_and_their_answers_are_named_on_both_sides() -> None:
    rng = Random(1)
    keys = [rng.choice((ApiKey.PRODUCE, ApiKey.END_TXN, ApiKey.FETCH)) for _ in range(200)]
    asked = b"".join(request(key, n, rng.randint(0, 60)) for n, key in enumerate(keys))
    answered = b"".join(answer(n, rng.randint(0, 60)) for n in range(200))
    watch = FrameWatch("broker")
    for kind, host, data in (
        ("send", "worker", asked),
        ("receive", "broker", asked),
        ("send", "broker", answered),
        ("receive", "worker", answered),
    ):
        names = [name for piece in chopped(data, rng) for name in watch.feed(kind, host, 7, piece)]
        assert names == [key.name for key in keys]


def test_connections_are_told_apart() -> None:
    watch = FrameWatch("broker")
    watch.feed("send", "a", 1, request(ApiKey.PRODUCE, 5))
    watch.feed("send", "b", 2, request(ApiKey.FETCH, 5))
    assert watch.feed("send", "broker", 2, answer(5)) == ["FETCH"]
    assert watch.feed("send", "broker", 1, answer(5)) == ["PRODUCE"]


def test_an_answer_to_what_was_not_heard_has_no_name() -> None:
    assert FrameWatch("broker").feed("send", "broker", 1, answer(9)) == [""]
