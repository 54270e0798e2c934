"""A worker stopped past its session timeout in the middle of a transaction, then resumed.

A proxy holds one request of the transaction back, so the worker is inside it by construction and
the request reaches the broker late, when another worker owns the partitions: what a zombie does.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from onceward.broker.client import Admin
from onceward.broker.errors import ErrorCode
from onceward.broker.protocol.api import ApiKey
from onceward.broker.protocol.headers import RequestHeader
from onceward.streams.cli.processes import WorkerPool
from onceward.streams.testing.proxy import FaultProxy

from .broker_process import BrokerUnderFire
from .pipeline import APP, PARTITIONS, Load, new_client
from .proxy import Hold

pytestmark = [pytest.mark.kills, pytest.mark.timeout(180)]

FENCED = {
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID,
}


async def wait_until(met: Any, what: str, timeout_s: float = 60) -> None:
    """Polls an async condition. Raises AssertionError when it is not met in time."""
    deadline = time.monotonic() + timeout_s
    while not await met():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.1)


def errors_in(answer: Any) -> set[ErrorCode]:
    """Every error code in a Produce, TxnOffsetCommit or EndTxn response."""
    if hasattr(answer, "error_code"):
        return {ErrorCode(answer.error_code)}
    topics = answer.responses if hasattr(answer, "responses") else answer.topics
    partitions = [
        partition
        for topic in topics
        for partition in getattr(topic, "partition_responses", None) or topic.partitions
    ]
    return {ErrorCode(partition.error_code) for partition in partitions}


@pytest.mark.parametrize("api", [ApiKey.PRODUCE, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN])
async def test_a_zombie_resumed_in_mid_transaction_duplicates_nothing_and_recovers(
    tmp_path: Path, api: ApiKey
) -> None:
    broker = BrokerUnderFire(tmp_path / "data", tmp_path / "broker.log")
    broker.start()
    async with FaultProxy(broker.address) as proxy:
        address = await proxy.listen("workers")
        first, second = (
            WorkerPool(
                APP,
                workers=1,
                broker=address,
                datadir=tmp_path / name,
                log=tmp_path / f"{name}.log",
                env={**os.environ, "UNDER_FIRE_COMMIT_INTERVAL": "0.05"},
            )
            for name in ("first", "second")
        )
        try:
            async with new_client(address) as client:
                await _play(client, proxy, first, second, api)
        finally:
            await asyncio.gather(first.stop(), second.stop())
            broker.stop()


async def _play(
    client: Any, proxy: FaultProxy, first: WorkerPool, second: WorkerPool, api: ApiKey
) -> None:
    admin = Admin(client)
    load = Load(client, rate=1000)

    async def members() -> int:
        return len((await admin.describe_groups(["under-fire"]))["under-fire"].members)

    await load.start()
    await first.start()
    await wait_until(lambda: _is(members, 1), "the first worker did not join")

    async def has_output() -> bool:
        return bool(load.output.numbers)

    await wait_until(has_output, "the first worker does not work")
    (zombie,) = {t.transactional_id for t in await admin.list_transactions()}
    await second.start()
    await wait_until(lambda: _is(members, 2), "the second worker did not join")

    def of_the_zombie(header: RequestHeader, message: Any) -> bool:
        return header.api_key == api and message.transactional_id == zombie

    hold = Hold(proxy, of_the_zombie)
    try:
        await asyncio.wait_for(hold.held.wait(), 30)
        await _replaced(first.pids[0], members, load)
    finally:
        hold.release()
    late = errors_in(await asyncio.wait_for(hold.answer, 30))
    # a late Produce may open a transaction, whose offsets the group's generation refuses then
    accepted = {ErrorCode.NONE} if api is ApiKey.PRODUCE else set()
    assert late and late <= FENCED | accepted, f"the zombie's late {api.name} got {late}"
    await wait_until(lambda: _is(members, 2), "the zombie did not come back by itself")
    await load.finish(60)
    load.judge()
    assert first.restarts == second.restarts == 0, "a worker did not recover, it was restarted"


async def _replaced(pid: int, members: Any, load: Load) -> None:
    """Stop the worker until it is expelled and another one does its work."""
    os.kill(pid, signal.SIGSTOP)
    try:
        await wait_until(lambda: _is(members, 1), "the zombie was never expelled")
        expelled = time.monotonic()

        async def all_move() -> bool:
            latest = [arrivals[-1] for arrivals in load.output.arrivals.values()]
            return len(latest) == PARTITIONS and min(latest) > expelled

        await wait_until(all_move, "nobody took the zombie's partitions over")
    finally:
        os.kill(pid, signal.SIGCONT)


async def _is(count: Any, expected: int) -> bool:
    return bool(await count() == expected)
