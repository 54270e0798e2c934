"""What only a simulated network does: partitions, resets and the deaths of hosts, to order."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from onceward.streams.testing.sim import Host, World

PORT = 7


class Pair:
    """``left`` listens and records what arrives; ``right`` connects and sends what it is told."""

    def __init__(self, seed: int = 1) -> None:
        self.world = World(seed)
        self.left, self.right = self.world.host("left"), self.world.host("right")
        self.received: list[tuple[float, bytes]] = []
        self.endings: dict[str, tuple[float, Exception | None]] = {}
        self.transports: dict[str, Any] = {}

    def protocol(self, name: str) -> asyncio.Protocol:
        pair = self

        class Noting(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                pair.transports[name] = transport

            def data_received(self, data: bytes) -> None:
                pair.received.append((pair.world.now, data))

            def connection_lost(self, exc: Exception | None) -> None:
                pair.endings[name] = (pair.world.now, exc)

        return Noting()

    async def listen(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_server(lambda: self.protocol("left"), "left", PORT)
        await loop.create_future()

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self.protocol("right"), "left", PORT)
        await loop.create_future()

    def open(self) -> None:
        self.left.start(self.listen)
        self.run(0.1)
        self.right.start(self.connect)
        self.run(0.5)

    def send(self, data: bytes, name: str = "right") -> None:
        """From within the program, as programs do."""
        self.transports[name].loop.call_soon(self.transports[name].write, data)

    def run(self, seconds: float) -> None:
        end = self.world.now + seconds
        self.world.at(end, lambda: None)
        self.world.run(lambda: self.world.now >= end)

    def bytes_received(self) -> bytes:
        return b"".join(data for _, data in self.received)


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    made.open()
    yield made
    made.world.end()


def test_a_partition_holds_bytes_back_and_the_heal_delivers_them_in_order(pair: Pair) -> None:
    pair.world.network.partition("left", pair.right)
    for number in range(10):
        pair.send(b"%d" % number)
    pair.run(60)
    assert not pair.received
    pair.world.network.heal()
    pair.send(b"!")
    pair.run(1)
    assert pair.bytes_received() == b"0123456789!"


def test_a_oneway_partition_lets_the_other_direction_through(pair: Pair) -> None:
    pair.world.network.partition("left", "right", oneway=True)
    pair.send(b"to left")
    pair.send(b"to right", "left")
    pair.run(5)
    assert pair.bytes_received() == b"to left"
    pair.world.network.heal("right", "left")
    pair.run(5)
    assert pair.bytes_received() == b"to leftto right"


def test_an_isolated_host_is_cut_off_from_all_until_it_is_healed(pair: Pair) -> None:
    pair.world.network.isolate("right")
    pair.send(b"x")
    pair.run(5)
    assert not pair.received
    pair.world.network.heal("right")
    pair.run(1)
    assert pair.bytes_received() == b"x"


def test_a_slow_host_is_slow_by_its_factor(pair: Pair) -> None:
    network = pair.world.network
    network.tail_p = 0.0
    network.slow("left", 1000.0)
    start = pair.world.now
    pair.send(b"x")
    pair.run(10)
    assert pair.received[0][0] - start > 1000 * network.min_latency_s
    network.slow("left", 1.0)
    start = pair.world.now
    pair.send(b"x")
    pair.run(1)
    assert pair.received[-1][0] - start < 0.02


def test_a_killed_process_is_ended_by_its_kernel(pair: Pair) -> None:
    pair.left.kill()
    pair.run(1)
    assert pair.endings["right"][1] is None  # FIN
    assert "left" not in pair.endings  # nobody there who could be told


def test_a_process_killed_with_unread_data_resets_its_peer(pair: Pair) -> None:
    pair.left.pause(0.5)
    pair.send(b"unread")
    pair.run(0.3)
    pair.left.kill()
    pair.run(1)
    assert isinstance(pair.endings["right"][1], ConnectionResetError)


def test_what_a_process_had_sent_arrives_after_its_death(pair: Pair) -> None:
    pair.send(b"testament")
    pair.world.run(lambda: pair.right.steps >= 1)
    pair.right.kill()
    pair.run(1)
    assert pair.bytes_received() == b"testament"


def test_a_machine_without_power_is_silent_and_resets_when_it_is_back(pair: Pair) -> None:
    pair.left.power_off()
    pair.send(b"hello?")
    pair.run(300)
    assert "right" not in pair.endings
    pair.left.start(pair.listen)
    pair.send(b"hello?")
    pair.run(1)
    assert isinstance(pair.endings["right"][1], ConnectionResetError)
    assert not pair.received


def test_what_was_sent_to_a_machine_without_power_is_reset_once_it_has_booted(pair: Pair) -> None:
    pair.left.power_off()
    pair.send(b"hello?")
    pair.run(1)
    pair.left.start(pair.listen)
    pair.run(2)
    assert isinstance(pair.endings["right"][1], ConnectionResetError)
    assert not pair.received


def test_what_was_sent_behind_a_partition_to_a_machine_that_boots_is_reset(pair: Pair) -> None:
    pair.left.power_off()
    pair.world.network.partition("left", "right")
    pair.send(b"hello?")
    pair.run(0.1)
    pair.left.start(pair.listen)
    pair.run(2)
    assert "right" not in pair.endings
    pair.world.network.heal()
    pair.run(2)
    assert isinstance(pair.endings["right"][1], ConnectionResetError)


def test_a_machine_that_stays_without_power_is_given_up_after_a_quarter_of_an_hour(
    pair: Pair,
) -> None:
    pair.left.power_off()
    pair.send(b"hello?")
    pair.run(600)
    assert "right" not in pair.endings
    pair.run(300)
    assert isinstance(pair.endings["right"][1], TimeoutError)


def test_a_connection_to_a_dead_process_is_refused_and_to_a_dead_machine_times_out() -> None:
    pair = Pair()
    pair.left.start(pair.listen)
    pair.run(0.1)
    pair.left.kill()
    pair.run(0.1)
    pair.right.start(pair.connect)
    pair.run(1)
    assert isinstance(pair.world.errors[0].exception, ConnectionRefusedError)
    pair.left.power_off()
    pair.right.start(pair.connect)
    pair.run(200)
    assert isinstance(pair.world.errors[1].exception, TimeoutError)
    pair.world.end()


def test_a_connect_goes_through_when_a_partition_ends_in_time() -> None:
    pair = Pair()
    pair.left.start(pair.listen)
    pair.world.network.partition("left", "right")
    pair.right.start(pair.connect)
    pair.run(5)
    pair.world.network.heal()
    pair.run(5)
    assert set(pair.transports) == {"left", "right"}
    pair.world.end()


def test_a_reset_ends_both_ends_with_an_error(pair: Pair) -> None:
    assert pair.world.network.reset_one(random.Random(1)) is not None
    pair.run(1)
    assert {name: type(error) for name, (_, error) in pair.endings.items()} == {
        "left": ConnectionResetError,
        "right": ConnectionResetError,
    }
    assert pair.world.network.connections() == []
    assert pair.world.network.reset_one(random.Random(1)) is None


@pytest.mark.parametrize("forgets", ["server", "client"])
def test_of_a_half_open_connection_the_other_end_learns_by_sending(
    pair: Pair, forgets: str
) -> None:
    names = {"server": "left", "client": "right"}
    gone = names.pop(forgets)
    (other,) = names.values()
    (connection,) = pair.world.network.connections()
    assert (connection.client, connection.server, connection.port) == (pair.right, pair.left, PORT)
    pair.world.network.half_open(connection, forgets=forgets)
    pair.run(60)
    assert list(pair.endings) == [gone]
    pair.send(b"are you there?", other)
    pair.run(1)
    assert isinstance(pair.endings[other][1], ConnectionResetError)
    assert not pair.received


def test_a_stopped_process_reads_when_it_goes_on_and_its_kernel_accepts_meanwhile() -> None:
    pair = Pair()
    pair.left.start(pair.listen)
    pair.run(0.1)
    pair.left.pause_until_resumed()
    pair.right.start(pair.connect)
    pair.run(1)
    assert list(pair.transports) == ["right"]
    pair.send(b"in the kernel")
    pair.run(1)
    assert not pair.received
    pair.left.resume()
    pair.run(1)
    assert pair.bytes_received() == b"in the kernel"
    pair.world.end()


def test_a_connection_is_listed_when_both_programs_know_it() -> None:
    pair = Pair()
    network = pair.world.network
    pair.left.start(pair.listen)
    pair.run(0.1)
    pair.left.pause_until_resumed()
    pair.right.start(pair.connect)
    pair.run(1)
    assert list(pair.transports) == ["right"]  # the kernel accepted
    assert network.connections() == []
    network.half_open(pair.transports["right"].connection, forgets="server")  # of no effect
    pair.left.resume()
    pair.run(1)
    assert len(network.connections()) == 1
    pair.world.end()


def test_a_reset_before_the_program_accepts_is_the_first_it_hears() -> None:
    pair = Pair()
    pair.left.start(pair.listen)
    pair.run(0.1)
    pair.left.pause_until_resumed()
    pair.right.start(pair.connect)
    pair.run(1)
    pair.world.network.reset(pair.transports["right"].connection)
    pair.run(1)
    pair.left.resume()
    pair.run(1)
    assert {type(error) for _, error in pair.endings.values()} == {ConnectionResetError}
    assert set(pair.endings) == {"left", "right"}
    pair.world.end()


def test_names_and_addresses_resolve_and_others_do_not(pair: Pair) -> None:
    resolve = pair.world.network.resolve
    for name in ("right", pair.right.ip):
        assert resolve(pair.left, name) is pair.right
    for local in ("localhost", "127.0.0.1", "left", None):
        assert resolve(pair.left, local) is pair.left
    with pytest.raises(socket.gaierror):
        resolve(pair.left, "nowhere")


def test_a_server_listens_on_its_own_addresses_only(pair: Pair) -> None:
    async def steal() -> str:
        loop: Any = asyncio.get_running_loop()
        with pytest.raises(OSError):
            await loop.create_server(lambda: pair.protocol("x"), "right", 80)
        with pytest.raises(NotImplementedError):
            await loop.create_server(lambda: pair.protocol("x"), "third", 80, ssl=object())
        return "no"

    task = pair.world.host("third").start(steal)
    pair.world.run(task)
    assert task.result() == "no"


def test_an_observer_sees_every_byte_on_the_wire(pair: Pair) -> None:
    seen: list[tuple[Host, Host, int, bytes]] = []
    pair.world.network.on_segment = lambda *segment: seen.append(segment)
    pair.send(b"question")
    pair.run(1)
    pair.send(b"answer", "left")
    pair.run(1)
    ids = {connection.id for connection in pair.world.network.connections()}
    assert {number for _, _, number, _ in seen} == ids
    assert b"".join(data for source, *_, data in seen if source is pair.right) == b"question"
    assert b"".join(data for source, *_, data in seen if source is pair.left) == b"answer"


def test_of_a_machine_that_lost_power_nothing_is_sent_again(pair: Pair) -> None:
    pair.world.network.partition("left", "right")
    pair.send(b"held back")
    pair.run(1)
    pair.right.power_off()
    pair.world.network.heal()
    pair.run(5)
    assert not pair.received


def test_a_server_can_be_given_a_socket_that_is_bound() -> None:
    world = World(1)
    host, other = world.host("host"), world.host("other")
    answered: list[str] = []

    async def serve() -> None:
        bound = host.bound_socket("host", PORT)
        assert bound.getsockname() == (host.ip, PORT)
        server = await asyncio.get_running_loop().create_server(asyncio.Protocol, sock=bound)
        await server.serve_forever()

    async def connect() -> None:
        await asyncio.open_connection("host", PORT)
        answered.append("connected")

    host.start(serve)
    world.after(0.1, other.start, connect)
    world.run(lambda: answered, max_virtual_s=5)
    world.end()
