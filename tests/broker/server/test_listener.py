"""Where the listener can be reached: one port at every address of its host."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Any

import pytest

from onceward.broker.server.connection import Address, Answer, Limits, Peer
from onceward.broker.server.listener import Listener


async def echo(peer: Peer, content: bytes) -> Answer:
    return [content]


def listener() -> Listener:
    return Listener(
        serve=echo,
        limits=Limits(request_bytes=1 << 20),
        max_connections=10,
        max_idle_s=60.0,
        on_close=lambda _: None,
    )


async def answers(host: str, port: int) -> bool:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"\0\0\0\1x")
    found = await reader.readexactly(1)
    writer.close()
    return found == b"x"


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.parametrize("host", ["", "localhost"])
async def test_a_free_port_is_the_same_for_ipv4_and_ipv6(host: str) -> None:
    one = listener()
    await one.start(Address(host, 0))
    assert await answers("127.0.0.1", one.address.port)
    if not host and has_ipv6():
        assert await answers("::1", one.address.port)
    one.abort()


class Servers:
    """The event loop's ``create_server``, at a host with two addresses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.create_server = asyncio.get_running_loop().create_server
        self.asked: list[int] = []
        self.taken = 0
        monkeypatch.setattr(asyncio.get_running_loop(), "create_server", self.two)

    async def two(self, factory: Any, host: str, port: int, **options: Any) -> asyncio.Server:
        self.asked.append(port)
        if port and self.taken:
            self.taken -= 1
            raise OSError(errno.EADDRINUSE, "address already in use")
        return await self.create_server(factory, ["127.0.0.1", "127.0.0.2"], port, **options)


async def test_a_port_that_is_taken_at_another_address_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    servers = Servers(monkeypatch)
    servers.taken = 2
    one = listener()
    await one.start(Address("", 0))
    used = one.address.port
    assert servers.asked[::2] == [0, 0, 0]
    assert servers.asked[5:] == [used]
    assert await answers("127.0.0.1", used)
    assert await answers("127.0.0.2", used)
    one.abort()


async def test_a_port_that_was_asked_for_is_not_exchanged_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    servers = Servers(monkeypatch)
    servers.taken = 1
    with pytest.raises(OSError, match="in use"):
        await listener().start(Address("", 9092))
    assert servers.asked == [9092]
