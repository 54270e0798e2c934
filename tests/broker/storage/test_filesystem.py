"""One suite for the real disk and the simulated one: what passes on one holds on the other."""

import asyncio
import contextlib
import random
from pathlib import Path

import pytest

from onceward.broker.storage.filesystem import FileSystem, LockHeldError, OsFileSystem
from onceward.streams.testing.sim import HostDied, SimDisk


@pytest.fixture(params=["os", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[FileSystem, str]:
    if request.param == "os":
        return OsFileSystem(), str(tmp_path)
    simulated = SimDisk()
    simulated.makedirs("/data")
    return simulated, "/data"


def test_an_append_returns_its_position_and_can_be_read_at_once(disk):
    fs, root = disk
    file = fs.open(f"{root}/a", create=True)
    assert file.append((b"one", b"", memoryview(b"two"))) == 0
    assert file.append((b"three",)) == 6
    assert file.size() == 11
    assert file.pread(3, 3) == b"two"
    assert file.pread(9, 100) == b"ee"
    assert file.pread(11, 5) == b""


def test_many_buffers_are_written_in_order(disk):
    fs, root = disk
    parts = [bytes([number % 256]) * (number % 7) for number in range(2000)]
    file = fs.open(f"{root}/a", create=True)
    file.append(parts)
    assert file.pread(0, file.size()) == b"".join(parts)


def test_an_append_after_a_truncate_begins_at_the_cut(disk):
    fs, root = disk
    file = fs.open(f"{root}/a", create=True)
    file.append((b"0123456789",))
    file.truncate(4)
    assert file.append((b"x",)) == 4
    assert fs.read(f"{root}/a") == b"0123x"


def test_a_reopened_file_goes_on_at_its_end(disk):
    fs, root = disk
    file = fs.open(f"{root}/a", create=True)
    file.append((b"one",))
    file.close()
    file = fs.open(f"{root}/a", create=True)
    assert file.append((b"two",)) == 3
    assert fs.read(f"{root}/a") == b"onetwo"


def test_opening_what_is_not_there_fails_without_create(disk):
    fs, root = disk
    with pytest.raises(FileNotFoundError):
        fs.open(f"{root}/a")
    with pytest.raises(FileNotFoundError):
        fs.read(f"{root}/a")
    with pytest.raises(FileNotFoundError):
        fs.list(f"{root}/nowhere")
    with pytest.raises(FileNotFoundError):
        fs.remove(f"{root}/a")


def test_directories_list_their_own_names_sorted(disk):
    fs, root = disk
    fs.makedirs(f"{root}/x/y")
    fs.makedirs(f"{root}/x/y")
    fs.open(f"{root}/x/b", create=True)
    fs.open(f"{root}/x/a", create=True)
    assert list(fs.list(f"{root}/x")) == ["a", "b", "y"]
    assert list(fs.list(f"{root}/x/y")) == []


def test_a_renamed_directory_takes_its_files_along(disk):
    fs, root = disk
    fs.makedirs(f"{root}/x")
    file = fs.open(f"{root}/x/a", create=True)
    file.append((b"1",))
    fs.rename(f"{root}/x", f"{root}/y")
    file.append((b"2",))
    assert not fs.exists(f"{root}/x")
    assert fs.read(f"{root}/y/a") == b"12"
    fs.remove_tree(f"{root}/y")
    assert list(fs.list(root)) == []


def test_write_atomic_replaces_the_content_and_leaves_nothing_beside_it(disk):
    fs, root = disk
    fs.write_atomic(f"{root}/a", b"old")
    fs.write_atomic(f"{root}/a", b"new")
    assert fs.read(f"{root}/a") == b"new"
    assert list(fs.list(root)) == ["a"]


def test_a_lock_is_exclusive_until_released(disk):
    fs, root = disk
    lock = fs.lock(f"{root}/.lock")
    with pytest.raises(LockHeldError):
        fs.lock(f"{root}/.lock")
    lock.release()
    lock.release()
    fs.lock(f"{root}/.lock").release()


async def test_files_sync_together_and_may_be_closed_while_they_do(disk):
    fs, root = disk
    fs.makedirs(f"{root}/x")
    files = [fs.open(f"{root}/x/{number}", create=True) for number in range(8)]
    for file in files:
        file.append((b"data",))
    syncs = [asyncio.ensure_future(file.fsync()) for file in files]
    await asyncio.sleep(0)
    for file in files:
        file.close()
    await asyncio.gather(*syncs)
    await files[0].fsync()


async def test_the_first_sync_of_a_file_covers_the_directories_made_for_it(tmp_path: Path):
    fs, root = OsFileSystem(), str(tmp_path)
    fs.makedirs(f"{root}/x/y")
    files = [fs.open(f"{root}/x/y/{name}", create=True) for name in "ab"]
    chain = [f"{root}/x/y", f"{root}/x", root]
    assert fs.unsynced_directories(f"{root}/x/y/a") == chain
    await files[0].fsync()
    assert fs.unsynced_directories(f"{root}/x/y/a") == []
    assert fs.unsynced_directories(f"{root}/x/y/b") == chain[:1]
    files[1].fsync_now()
    assert fs.unsynced_directories(f"{root}/x/y/b") == []


def test_what_was_synced_survives_every_power_cut_and_the_rest_is_a_gamble():
    rng = random.Random(1)
    outcomes = set()
    for _ in range(300):
        disk = SimDisk()
        disk.makedirs("/data/log")
        file = disk.open("/data/log/a", create=True)
        file.append((b"s" * 1000,))
        file.fsync_now()
        file.append((b"u" * 1500,))
        disk.power_cut(rng)
        left = disk.read("/data/log/a")
        assert left[:1000] == b"s" * 1000
        tail = left[1000:]
        outcomes.add("zeros" if tail and not tail.strip(b"\0") else len(tail) in (0, 1500))
    assert outcomes == {"zeros", True, False}


async def test_a_sync_covers_what_was_appended_before_it_began_and_no_more():
    disk = SimDisk()
    disk.sync_gate = asyncio.Event()
    disk.makedirs("/data")
    file = disk.open("/data/a", create=True)
    file.append((b"before",))
    sync = asyncio.ensure_future(file.fsync())
    await asyncio.sleep(0)
    file.append((b"after",))
    disk.sync_gate.set()
    await sync
    inode = disk.names["/data/a"]
    assert inode is not None
    assert inode.durable == b"before"
    assert len(inode.unsynced) == 1


def test_an_atomic_write_is_all_or_nothing_at_every_step():
    for kill_at in range(1, 10):
        for seed in range(5):
            disk = SimDisk()
            disk.makedirs("/data")
            disk.write_atomic("/data/a", b"old")
            disk.kill_at = disk.steps + kill_at
            finished = False
            with contextlib.suppress(HostDied):
                disk.write_atomic("/data/a", b"new")
                finished = True
            disk.power_cut(random.Random(seed))
            assert disk.read("/data/a") in ((b"new",) if finished else (b"old", b"new"))
