"""Workers that write to a sink, and the sink's own server, killed and stopped at random moments:
every row exactly once, whatever the sink.

    ONCEWARD_KILLS=30 ONCEWARD_RECORDS=200000 pytest -m kills tests/kills/test_sink_kills.py -s

So many workers die, a third as often the server does, and a sixth as often a worker is stopped
until others have its partitions, every second time within a transaction. The moments are random
among the records: the feed waits for the workers, so all of them come while there is work. Nothing
but the source says which rows must be there, and no unique key would hide a duplicate.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .fire import Fire, under_fire
from .targets import TARGETS, Target

pytestmark = [pytest.mark.kills, pytest.mark.timeout(900)]

KILLS = int(os.environ.get("ONCEWARD_KILLS", "5"))
RECORDS = int(os.environ.get("ONCEWARD_RECORDS", "20000"))
SERVER_KILLS = max(1, KILLS // 3)
STOPS = max(2, KILLS // 6)


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    made = TARGETS[request.param](request.param, tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.remove()


async def test_workers_and_servers_killed_and_stopped_at_random_moments_leave_every_row_once(
    target: Target, tmp_path: Path
) -> None:
    rng = random.Random(6)
    happenings = [Fire.kill_worker] * KILLS + [Fire.stop_worker] * STOPS
    happenings += [Fire.kill_server] * (SERVER_KILLS if target.has_server else 0)
    rng.shuffle(happenings)
    moments = sorted(rng.sample(range(RECORDS // 50, RECORDS * 9 // 10), len(happenings)))
    began = time.monotonic()
    async with under_fire(target, tmp_path, rng, RECORDS) as fire:
        for moment, happen in zip(moments, happenings, strict=True):
            await fire.until_moment(moment)
            await happen(fire)
    print(
        f"{target.kind}: {RECORDS} records in {time.monotonic() - began:.0f} s, {fire.killed} "
        f"workers and {fire.servers_killed} servers killed, {fire.stopped} workers stopped, "
        f"{fire.caught} of them within a transaction: 0 lost, 0 repeated"
    )
    assert fire.killed == fire.pool.restarts
    assert not target.can_be_caught or fire.caught
