"""A worker stopped past its session timeout in the middle of a transaction, then resumed."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from onceward.broker.client import Admin
from onceward.streams.cli.processes import BrokerProcess, WorkerPool

from .pipeline import APP, Load, new_client

pytestmark = [pytest.mark.kills, pytest.mark.timeout(180)]


async def stop_in_mid_transaction(pool: WorkerPool, admin: Admin) -> int:
    """SIGSTOP the first worker while its transaction is open on the broker; returns its pid."""
    pid = pool.pids[0]
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        os.kill(pid, signal.SIGSTOP)
        # give the broker time to finish what the worker had sent before it was stopped
        await asyncio.sleep(0.05)
        open_now = [t for t in await admin.list_transactions() if t.state == "Ongoing"]
        await asyncio.sleep(0.3)  # another worker's commit is over by now, the stopped one's is not
        still = [t for t in await admin.list_transactions() if t.state == "Ongoing"]
        if {t.transactional_id for t in open_now} & {t.transactional_id for t in still}:
            return pid
        os.kill(pid, signal.SIGCONT)
        await asyncio.sleep(0.037)
    raise AssertionError("the worker was never caught inside a transaction")


async def group_sizes(admin: Admin, until: int, timeout_s: float) -> int:
    """Members of the group, once they are ``until`` or the time is over."""
    deadline = time.monotonic() + timeout_s
    while True:
        group = (await admin.describe_groups(["under-fire"]))["under-fire"]
        if len(group.members) == until or time.monotonic() > deadline:
            return len(group.members)
        await asyncio.sleep(0.2)


async def test_a_zombie_resumed_in_mid_transaction_duplicates_nothing_and_recovers(
    tmp_path: Path,
) -> None:
    broker = BrokerProcess(tmp_path / "data", tmp_path / "broker.log")
    await broker.start()
    pool = WorkerPool(
        APP,
        workers=2,
        broker=broker.address,
        datadir=tmp_path / "workers",
        log=tmp_path / "workers.log",
        env={**os.environ, "UNDER_FIRE_COMMIT_INTERVAL": "0.05"},
    )
    try:
        async with new_client(broker.address) as client:
            admin = Admin(client)
            load = Load(client, rate=1000)
            await load.start()
            await pool.start()
            assert await group_sizes(admin, 2, 30) == 2
            pid = await stop_in_mid_transaction(pool, admin)
            assert await group_sizes(admin, 1, 60) == 1, "the zombie was never expelled"
            seen = len(load.output.numbers)
            await asyncio.sleep(3)
            assert len(load.output.numbers) > seen, "nobody took the zombie's partitions over"
            os.kill(pid, signal.SIGCONT)
            assert await group_sizes(admin, 2, 60) == 2, "the zombie did not come back by itself"
            await asyncio.sleep(2)
            await load.finish(60)
            load.judge()
            assert pool.restarts == 0, "the worker did not recover, it was restarted"
    finally:
        await pool.stop()
        await broker.stop()
