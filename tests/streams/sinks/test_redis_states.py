"""The Redis sink and servers that cannot be written to, or do not keep what they are given."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from redis import exceptions
from redis.client import Redis

from onceward.streams import App, Stream
from onceward.streams.sinks import RedisSink, SinkError, SinkTimeout, SinkUnavailable
from onceward.streams.sinks.positions import Position
from onceward.streams.sinks.redis_session import is_new_enough, is_passing

from ..workers import make_app, until, worker
from .database_proxy import proxied
from .driven import TP, Driven, driven
from .etl import Order, is_done, make_cluster, put_orders
from .redis_server import REDIS_COMMIT, RedisServer


@contextmanager
def server(**settings: str) -> Iterator[RedisServer]:
    """One of its own; underscores in names of settings are hyphens."""
    made = RedisServer({name.replace("_", "-"): value for name, value in settings.items()})
    try:
        made.start()
        yield made
    finally:
        made.remove()


@asynccontextmanager
async def sink(url: str, **options: Any) -> AsyncIterator[RedisSink]:
    made = RedisSink(url, **{"prefix": "log", "kind": "stream", **options})
    try:
        yield made
    finally:
        await made.close()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


# users


def acl(redis: RedisServer, *rules: str) -> None:
    redis.client.execute_command("ACL SETUSER", "ann", *rules)


@pytest.mark.parametrize(
    ("user", "message"),
    [
        (":s3cret", "WRONGPASS|invalid username-password"),
        ("ann:s3cret", "WRONGPASS|invalid username-password"),
        ("", "NOAUTH|Authentication required"),
    ],
)
async def test_a_wrong_password_or_none_is_said_and_not_shown(user: str, message: str) -> None:
    with server() as redis:
        redis.client.execute_command("ACL SETUSER", "default", ">right", "on")
        async with sink(redis.url(user=user)) as one:
            with pytest.raises(
                SinkError, match=rf"sink 'log' .*AuthenticationError: ({message})"
            ) as caught:
                await one.start()
        assert "s3cret" not in str(caught.value)
        async with sink(redis.url(user=":right")) as one:
            await one.start()


async def test_a_key_that_may_not_be_written_stops_the_worker_and_nothing_is_half_done(
    redis: RedisServer,
) -> None:
    acl(redis, "on", "nopass", "+@all", "~onceward_*", "~k:1*")
    try:
        async with sink(redis.url(user="ann:x"), prefix="k:", key="id") as one:
            owner = await driven(one)
            await owner.write({"id": 1})
            with pytest.raises(SinkError, match=r"NoPermissionError: .*key"):
                await owner.write({"id": 11}, {"id": 2})
            assert redis.client.exists("k:11") == 0
            await owner.write({"id": 12})
        acl(redis, "-xadd", "~log")
        async with sink(redis.url(user="ann:x")) as one:
            owner = await driven(one)
            with pytest.raises(SinkError, match="the user may not run XADD"):
                await owner.write({"x": 1})
    finally:
        redis.client.acl_deluser("ann")
    assert sorted(redis.client.scan_iter("k:*")) == ["k:1", "k:12"]


async def test_a_user_without_info_is_told_so(redis: RedisServer) -> None:
    acl(redis, "on", "nopass", "+@all", "-info", "~*")
    try:
        async with sink(redis.url(user="ann:x")) as one:
            with pytest.raises(SinkError, match=r"NoPermissionError: .*'info'"):
                await one.start()
        acl(redis, "+info", "-config")
        async with sink(redis.url(user="ann:x")) as one:
            await (await driven(one)).write({"x": 1})
    finally:
        redis.client.acl_deluser("ann")


# what passes


async def test_what_is_not_there_is_unavailable(tmp_path: Path) -> None:
    urls = (
        f"redis://127.0.0.1:{free_port()}/0",
        f"unix://{tmp_path}/none.sock",
        "redis://host.invalid",
    )
    for url in urls:
        async with sink(url) as one:
            with pytest.raises(
                SinkUnavailable, match=r"sink 'log' \(stream log in .*ConnectionErr"
            ):
                await one.start()


async def test_a_database_that_the_server_has_not_is_an_error(redis: RedisServer) -> None:
    async with sink(redis.url(database=9)) as one:
        with pytest.raises(SinkError, match="DB index is out of range"):
            await one.start()


async def test_databases_have_positions_of_their_own(redis: RedisServer) -> None:
    async with sink(redis.url(database=1)) as one, sink(redis.url()) as other:
        await (await driven(one)).write({"x": 1})
        assert (await driven(other)).claim.next_offset == 0
    other_client = Redis(unix_socket_path=str(redis.socket), db=1)
    assert other_client.xlen("log") == 1
    other_client.close()


def full(redis: RedisServer) -> None:
    redis.client.config_set("maxmemory", 1)


def emptied(redis: RedisServer) -> None:
    redis.client.config_set("maxmemory", 0)


def read_only(redis: RedisServer) -> None:
    redis.client.replicaof("127.0.0.1", 1)


def writable(redis: RedisServer) -> None:
    redis.client.replicaof("NO", "ONE")


def without_replicas(redis: RedisServer) -> None:
    redis.client.config_set("min-replicas-to-write", 1)


def again(redis: RedisServer) -> None:
    redis.client.config_set("min-replicas-to-write", 0)


def disk_full(redis: RedisServer) -> None:
    """A snapshot that cannot be put where it belongs: from then on nothing is written."""
    redis.client.config_set("save", "3600 1")
    (redis.folder / "dump.rdb" / "in the way").mkdir(parents=True)
    redis.client.bgsave()
    while redis.client.info("persistence")["rdb_last_bgsave_status"] == "ok":
        time.sleep(0.01)


def disk_free(redis: RedisServer) -> None:
    redis.client.config_set("save", "")


STATES = [
    (full, emptied, "OutOfMemoryError: "),
    (read_only, writable, "ReadOnlyError: |is a replica"),
    (without_replicas, again, "NOREPLICAS"),
    (disk_full, disk_free, "MISCONF"),
]


@pytest.mark.parametrize(("begin", "end", "message"), STATES)
async def test_states_that_pass_do_nothing_and_are_tried_again(
    begin: Any, end: Any, message: str
) -> None:
    with server() as redis:
        async with sink(redis.url()) as one:
            owner = await driven(one)
            await owner.write({"x": 1})
            begin(redis)
            with pytest.raises(SinkUnavailable, match=rf"sink 'log' .*({message})"):
                await owner.write({"x": 2}, {"x": 3})
            with pytest.raises(SinkUnavailable, match=rf"sink 'log' .*({message})"):
                await owner.take_over()
            assert redis.client.xlen("log") == 1
            end(redis)
            await owner.take_over()
            await owner.write({"x": 2})
        assert redis.client.xlen("log") == 2


async def test_a_server_busy_with_another_script_is_waited_for(redis: RedisServer) -> None:
    redis.client.config_set("busy-reply-threshold", 1)
    other = Redis(unix_socket_path=str(redis.socket))

    def spin() -> None:
        with pytest.raises(exceptions.ResponseError, match="killed"):
            other.eval("while true do end", 0)

    async with sink(redis.url()) as one:
        owner = await driven(one)
        thread = threading.Thread(target=spin)
        thread.start()
        try:
            async with asyncio.timeout(10):
                while True:
                    try:
                        await owner.write({"x": 1})
                    except SinkUnavailable as error:
                        assert "BUSY" in str(error)
                        break
            redis.client.script_kill()
        finally:
            thread.join(10)
        await owner.take_over()
        before = redis.client.xlen("log")
        await owner.write({"x": 2})
        assert redis.client.xlen("log") == before + 1
    other.close()
    redis.client.config_set("busy-reply-threshold", 5000)


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (exceptions.BusyLoadingError("Redis is loading the dataset in memory"), True),
        (exceptions.ClusterDownError("Hash slot not served"), True),
        (exceptions.ConnectionError("max number of clients reached"), True),
        (exceptions.AskError("5 127.0.0.1:1"), True),
        (exceptions.ResponseError("MASTERDOWN Link with MASTER is down"), True),
        (exceptions.ResponseError("ERR unknown command 'EVAL'"), False),
        (exceptions.ResponseError("WRONGTYPE Operation against a key"), False),
        (exceptions.ConnectionError("Error 1: [SSL: CERTIFICATE_VERIFY_FAILED] unable"), False),
        (exceptions.NoPermissionError("this user has no permissions"), False),
    ],
)
def test_other_errors_are_known_by_class_or_code(error: Exception, passes: bool) -> None:
    assert is_passing(error) is passes


def state_app(tmp_path: Path, url: str) -> App:
    app = make_app(tmp_path)
    log = RedisSink(url, prefix="log", kind="stream")

    @app.agent(app.topic("orders", value_type=Order, partitions=2), sink=[log])
    async def etl(stream: Stream[Order]) -> AsyncIterator[Order]:
        async for order in stream:
            yield order

    return app


@pytest.mark.parametrize(("begin", "end", "message"), STATES[:2])
async def test_an_outage_is_said_and_ends_by_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, begin: Any, end: Any, message: str
) -> None:
    cluster = make_cluster(20)
    with server() as redis:
        async with worker(state_app(tmp_path, redis.url()), cluster) as running:
            await until(is_done(cluster), running, timeout=10)
            begin(redis)
            put_orders(cluster, 20, start=20)
            await until(lambda: "sink 'log'" in caplog.text, running, timeout=10)
            await asyncio.sleep(0.2)
            end(redis)
            await until(is_done(cluster), running, timeout=20)
        ids = sorted(int(fields["id"]) for _, fields in redis.client.xrange("log"))
    assert ids == list(range(40))


async def test_a_server_that_still_loads_what_it_had_is_waited_for() -> None:
    """INFO says ``aof_enabled:0`` until the log is read."""
    with server(key_load_delay="1") as redis:
        pipeline = redis.client.pipeline(transaction=False)
        for number in range(8000):  # it answers after every 1024 of them
            pipeline.rpush("log", number)
        pipeline.execute()
        redis.kill()
        starting = asyncio.create_task(asyncio.to_thread(redis.start))
        async with sink(redis.url(), kind="list") as one:
            said = []
            while not starting.done():
                try:
                    await one.start()
                except SinkUnavailable as error:
                    said.append(str(error))
                await asyncio.sleep(0.01)  # a refused connection does not let others run
            await starting
            await one.start()
    assert any("is loading" in each for each in said)


def test_servers_that_cannot_check_before_they_write_are_too_old() -> None:
    versions = ("6.2.14", "7.0.0", "7.4-rc1", "8.2.1", "255.255.255", "unknown")
    assert [is_new_enough(version) for version in versions] == [
        False,
        True,
        True,
        True,
        True,
        False,
    ]


# what is kept


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"appendonly": "no"}, "appendonly is off, so a crash of the server loses all since"),
        (
            {"maxmemory": "1gb", "maxmemory_policy": "allkeys-lru"},
            "maxmemory-policy allkeys-lru may drop positions and rows",
        ),
    ],
)
async def test_a_server_that_keeps_nothing_is_refused_unless_that_is_wanted(
    settings: dict[str, str], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    with server(**settings) as redis:
        async with sink(redis.url()) as one:
            with pytest.raises(
                SinkError, match=f"{message}.*; change that, or give allow_volatile"
            ):
                await one.start()
        async with sink(redis.url(), allow_volatile=True) as one:
            await (await driven(one)).write({"x": 1})
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_last_second_that_may_be_lost_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with server(appendfsync="everysec") as redis:
        async with sink(redis.url()) as one:
            owner = await driven(one)
            redis.client.client_kill_filter(_type="normal", skipme=True)
            with pytest.raises(SinkUnavailable):
                await owner.write({"x": 1})
            await owner.take_over()
    assert caplog.text.count("appendfsync is everysec, so a power failure may lose") == 1


async def test_a_commit_counts_when_enough_replicas_have_it() -> None:
    port = str(free_port())
    with server(port=port, bind="127.0.0.1", repl_diskless_sync_delay="0") as primary:
        async with sink(primary.url(), replicas=1, timeout=1) as one:
            with pytest.raises(SinkUnavailable, match="0 of 1 replicas have the commit"):
                await driven(one)
        with server(replicaof=f"127.0.0.1 {port}") as replica:
            async with sink(primary.url(), replicas=1, timeout=10) as one:
                owner = await driven(one)
                for number in range(5):
                    await owner.write({"x": number})
                    assert replica.client.xlen("log") == number + 1
                replica.client.replicaof("NO", "ONE")
                one.timeout = 1.0
                with pytest.raises(SinkUnavailable, match="0 of 1 replicas have the commit"):
                    await owner.write({"x": 5})
            async with sink(replica.url(), replicas=0) as one:
                owner = await driven(one)
                assert owner.claim.next_offset == 5, "the replica that takes over has both"
                assert replica.client.xlen("log") == 5


async def test_one_that_is_late_is_a_timeout(redis: RedisServer) -> None:
    async with (
        proxied(redis, REDIS_COMMIT) as proxy,
        sink(redis.url(host=proxy.folder), timeout=0.1) as one,
    ):
        proxy.hangs = True
        with pytest.raises(SinkTimeout, match=r"did not answer within 0\.1 s"):
            await one.start()


# clusters


def cluster_port() -> int:
    """The nodes of a cluster talk to each other at a port 10000 higher."""
    while True:
        port = free_port()
        if port < 55_000:
            return port


@contextmanager
def node(port: int, *slots: int) -> Iterator[RedisServer]:
    """``slots``: first and last."""
    with server(port=str(port), bind="127.0.0.1", cluster_enabled="yes") as made:
        made.client.execute_command("CLUSTER ADDSLOTSRANGE", *slots)
        yield made


async def is_ok(redis: RedisServer) -> None:
    while redis.client.execute_command("CLUSTER INFO")["cluster_state"] != "ok":
        await asyncio.sleep(0.01)


async def test_a_cluster_needs_a_hash_tag_and_the_node_that_has_it_is_found() -> None:
    """The slot of ``{k}`` is 7629."""
    first, second = cluster_port(), cluster_port()
    with node(first, 0, 7000) as other, node(second, 7001, 16383) as redis:
        other.client.execute_command("CLUSTER MEET", "127.0.0.1", second)
        await is_ok(other)
        await is_ok(redis)
        url = f"redis://127.0.0.1:{first}/0"
        async with sink(url, prefix="k:", key="id", kind="hash") as one:
            with pytest.raises(SinkError, match=r"is a Redis Cluster.*as prefix='\{k\}k:'"):
                await one.start()
        async with sink(url, prefix="{k}k:", key="id", kind="hash") as one:
            owner: Driven[RedisSink] = await driven(one)
            await owner.write({"id": "{other}1"}, {"id": 2})
            assert (await one.positions("app"))[TP] == Position(2, 1, 0)
        assert sorted(redis.client.scan_iter()) == [
            "{k}k:2", "{k}k:{other}1", "{k}onceward_positions:app:kk",
        ]  # fmt: skip
