"""The simulated disk's faults and its time. That it is a file system like the real one is asserted
in tests/broker/storage/test_filesystem.py, on both."""

from __future__ import annotations

import errno
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from onceward.streams.testing.sim import Host, SimDisk, Step, World


def on_host(work: Callable[[Host], Awaitable[Any]], **attributes: Any) -> tuple[Any, Host]:
    world = World(1)
    for name, value in attributes.items():
        setattr(world, name, value)
    host = world.host("a")

    async def main() -> Any:
        return await work(host)

    task = host.start(main)
    world.run(task)
    world.end()
    return task.result(), host


def filled(disk: SimDisk) -> Any:
    """A file with four synced bytes."""
    file = disk.open("/a", create=True)
    file.append([b"safe"])
    file.fsync_now()
    return file


def contents_after_power_cuts(disk: Callable[[], SimDisk]) -> set[bytes]:
    found = set()
    for seed in range(50):
        one = disk()
        one.power_cut(random.Random(seed))
        found.add(one.read("/a"))
    return found


def test_a_failed_sync_drops_what_it_could_not_write_though_it_can_still_be_read() -> None:
    def disk() -> SimDisk:
        one = SimDisk()
        file = filled(one)
        file.append([b"lost"])
        one.fail_fsyncs(1)
        with pytest.raises(OSError) as caught:
            file.fsync_now()
        assert caught.value.errno == errno.EIO
        assert one.read("/a") == b"safelost"
        file.append([b"more"])
        file.fsync_now()  # succeeds, and yet
        assert one.read("/a") == b"safelostmore"
        return one

    assert contents_after_power_cuts(disk) == {b"safe\0\0\0\0more"}


def test_changes_of_one_name_reach_the_disk_in_order() -> None:
    """A name that was removed and made again is not removed by the sync of its directory."""
    disk = SimDisk()
    disk.open("/a.tmp", create=True).fsync_now()
    disk.remove("/a.tmp")
    again = disk.open("/a.tmp", create=True)
    again.append([b"new"])
    again.fsync_now()
    disk.rename("/a.tmp", "/a")
    disk.fsync_dir("/")
    disk.power_cut(random.Random(1))
    assert disk.read("/a") == b"new"
    assert not disk.exists("/a.tmp")


def test_a_later_sync_makes_the_writes_of_an_unfinished_one_durable() -> None:
    def disk() -> SimDisk:
        one = SimDisk()
        file = filled(one)
        file.append([b"one"])
        first = file.begin_sync()
        file.truncate(4)
        file.append([b"two"])
        second = file.begin_sync()
        second()
        first()
        return one

    assert contents_after_power_cuts(disk) == {b"safetwo"}


def test_a_kill_keeps_what_was_written_and_frees_the_locks() -> None:
    disk = SimDisk()
    filled(disk).append([b"unsynced"])
    disk.lock("/lock")
    disk.kill()
    disk.lock("/lock")
    assert disk.read("/a") == b"safeunsynced"


def test_a_full_disk_takes_what_fits() -> None:
    disk = SimDisk()
    file = filled(disk)
    disk.free_bytes = 3
    with pytest.raises(OSError) as caught:
        file.append([b"four"])
    assert caught.value.errno == errno.ENOSPC
    assert file.size() == 7
    with pytest.raises(OSError):
        disk.write_atomic("/b", b"x")
    disk.free_bytes = None
    file.append([b"four"])
    assert disk.list("/") == ["a"]


def test_a_sync_takes_virtual_time_and_a_slow_one_more() -> None:
    async def work(host: Host) -> list[float]:
        file = host.disk.open("/a", create=True)
        times = []
        for slow in (0.0, 1.0):
            host.disk.slow_fsync(slow, 1.0 if slow else 0.0)
            start = host.world.now
            for _ in range(20):
                file.append([b"x"])
                await file.fsync()
            times.append(host.world.now - start)
        return times

    (usual, slow), _ = on_host(work)
    assert 0.005 < usual < 0.1
    assert 5 < slow < 60


def test_a_blocking_sync_holds_up_the_process() -> None:
    async def work(host: Host) -> float:
        import asyncio

        file = host.disk.open("/a", create=True)
        host.disk.slow_fsync(1.0, 1.0)
        start = host.world.now
        for _ in range(20):
            file.fsync_now()
        await asyncio.sleep(0)
        return host.world.now - start

    assert 5 < on_host(work)[0] < 60


def test_every_change_is_a_step_of_the_host_and_reading_is_none() -> None:
    async def work(host: Host) -> None:
        disk = host.disk
        disk.makedirs("/d")
        file = disk.open("/d/a", create=True)
        file.append([b"x"])
        await file.fsync()
        file.truncate(0)
        disk.rename("/d/a", "/d/b")
        disk.fsync_dir("/d")
        disk.remove("/d/b")
        disk.list("/d")
        disk.write_atomic("/d/c", b"x")
        disk.read("/d/c")
        disk.remove_tree("/d")

    steps: list[Step] = []
    _, host = on_host(work, on_step=lambda host, step: steps.append(step))
    assert [f"{step.kind} {step.detail}" for step in steps] == [
        "write /d",
        "write /d/a",
        "write /d/a",
        "fsync /d/a",
        "truncate /d/a",
        "rename /d/a /d/b",
        "fsync_dir /d",
        "remove /d/b",
        "write /d/c.tmp",
        "fsync /d/c.tmp",
        "rename /d/c.tmp /d/c",
        "fsync_dir /d",
        "remove /d",
    ]
    assert [step.number for step in steps] == list(range(1, 14))
    assert host.steps == 13


def test_a_power_cut_of_a_host_is_one_of_its_disk() -> None:
    async def work(host: Host) -> None:
        file = host.disk.open("/a", create=True)
        file.append([b"safe"])
        await file.fsync()
        file.append([b"u" * 10_000])

    found = set()
    for seed in range(30):
        world = World(seed)
        host = world.host("a")
        world.run(host.start(work, host))
        host.power_off()
        content = host.disk.read("/a")
        assert content.startswith(b"safe")
        found.add(len(content))
        world.end()
    assert {4, 10_004} < found
