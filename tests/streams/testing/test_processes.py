"""Runs with real processes, as far as they need none: plans, aims, and what a worker tells."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from onceward.broker.protocol.api import ApiKey
from onceward.broker.protocol.codec import RequestHeader
from onceward.streams import App, ConfigurationError
from onceward.streams.sinks import Batch, DatabaseSink, MemorySink, SqliteSink
from onceward.streams.testing.faults import PROCESS_KINDS, Aim, Fault
from onceward.streams.testing.processes import ProcessReport, ProcessVerification
from onceward.streams.testing.processes_faults import ProcessNemesis, draw_process_plan
from onceward.streams.testing.processes_sinks import lasting_sinks, read_sinks
from onceward.streams.testing.processes_worker import Told, apply_settings
from onceward.streams.testing.proxy import FaultProxy, Frame
from onceward.streams.testing.scenario import Scenario

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_a_plan_is_the_seeds_and_has_only_what_real_processes_can_suffer() -> None:
    assert draw_process_plan(7, 3) == draw_process_plan(7, 3)
    plans = [draw_process_plan(seed, 3) for seed in range(300)]
    faults = [fault for plan in plans for fault in plan]
    assert {fault.kind for fault in faults} == set(PROCESS_KINDS)
    assert all(len(plan) >= 3 for plan in plans)
    aims = [fault.aim for fault in faults if fault.kind == "aimed"]
    assert {aim.step_kind for aim in aims} == {"send", "receive"}
    assert {aim.action for aim in aims} == {"kill", "pause", "reset"}
    assert Fault.from_json(Fault(1.0, "terminate", "worker-0", (0.1,)).to_json()).args == (0.1,)


class Victim:
    """A host that notes what is done to it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.done: list[str] = []

    async def kill(self, restart_s: float) -> None:
        self.done.append(f"killed for {restart_s}")

    def pause(self) -> None:
        self.done.append("paused")

    def resume(self) -> None:
        self.done.append("resumed")


class Aimed:
    """A nemesis with one aimed fault, and frames to pass it."""

    def __init__(self, target: str, aim: Aim) -> None:
        self.hosts = {name: Victim(name) for name in ("broker", "worker-0", "worker-1")}
        self.victim = self.hosts[target]
        self.proxy = FaultProxy("127.0.0.1:1")
        cluster: Any = SimpleNamespace(hosts=self.hosts, proxy=self.proxy, note=lambda *words: None)
        nemesis = ProcessNemesis(cluster, [Fault(0.0, "aimed", target, tuple(aim))])
        self.running = asyncio.create_task(nemesis.run())

    async def passes(self, worker: str, api: ApiKey, *, is_request: bool) -> bool:
        await asyncio.sleep(0.01)  # the fault begins to look out
        connection: Any = SimpleNamespace(link=SimpleNamespace(name=worker))
        header = RequestHeader(api, 0, 1, None)
        return await self.proxy.intercept(Frame(connection, is_request, header, b""))


async def test_a_worker_is_killed_instead_of_sending_what_was_aimed_at() -> None:
    aimed = Aimed("worker-0", Aim("send", 2, "kill", 0.0, 0.5, "END_TXN"))
    assert await aimed.passes("worker-0", ApiKey.END_TXN, is_request=True)
    assert await aimed.passes("worker-1", ApiKey.END_TXN, is_request=True)
    assert await aimed.passes("worker-0", ApiKey.PRODUCE, is_request=True)
    assert await aimed.passes("worker-0", ApiKey.END_TXN, is_request=False)
    assert aimed.victim.done == []
    assert not await aimed.passes("worker-0", ApiKey.END_TXN, is_request=True)
    assert aimed.victim.done == ["killed for 0.5"]
    assert await aimed.passes("worker-0", ApiKey.END_TXN, is_request=True)
    aimed.running.cancel()


async def test_a_worker_stopped_in_the_middle_of_a_send_sends_when_it_goes_on() -> None:
    aimed = Aimed("worker-0", Aim("send", 1, "pause", 0.0, 0.02, "PRODUCE"))
    assert await aimed.passes("worker-0", ApiKey.PRODUCE, is_request=True)
    assert aimed.victim.done == ["paused", "resumed"]
    aimed.running.cancel()


async def test_the_broker_is_killed_between_a_request_and_its_answer() -> None:
    aimed = Aimed("broker", Aim("send", 1, "kill", 0.0, 0.0, "INIT_PRODUCER_ID"))
    assert await aimed.passes("worker-1", ApiKey.INIT_PRODUCER_ID, is_request=True)
    assert not await aimed.passes("worker-1", ApiKey.INIT_PRODUCER_ID, is_request=False)
    assert aimed.victim.done == ["killed for 0.0"]
    aimed.running.cancel()


async def test_a_delayed_kill_lets_the_frame_pass() -> None:
    aimed = Aimed("worker-0", Aim("receive", 1, "kill", 0.001, 0.0, ""))
    assert await aimed.passes("worker-0", ApiKey.FETCH, is_request=False)
    assert aimed.victim.done == []
    while not aimed.victim.done:
        await asyncio.sleep(0.001)
    aimed.running.cancel()


def test_what_a_worker_tells_is_read_back_once_it_is_the_answer(tmp_path: Path) -> None:
    assert Told.read(tmp_path, 1) is None
    told = Told(1, {"counts": {0: {b"\xff": b"1"}, 2: {}}}, ["main: waits"])
    told.write(tmp_path)
    assert Told.read(tmp_path, 1) == told
    assert Told.read(tmp_path, 2) is None


def test_timeouts_are_shortened_where_the_app_has_the_usual_ones() -> None:
    app = App("patient", broker_session_timeout=7.0)
    apply_settings(app, {"processing_guarantee": "at_least_once"})
    assert app.conf.broker_session_timeout == 7.0
    assert app.conf.broker_request_timeout < App("usual").conf.broker_request_timeout
    assert app.conf.processing_guarantee == "at_least_once"


def test_a_database_with_a_relative_path_is_new_in_every_round(tmp_path: Path) -> None:
    app = App("sinks")
    words = app.topic("words")
    fresh = SqliteSink("a.db", table="a", value_type={"x": int}, create=True)
    lasting = SqliteSink(tmp_path / "b.db", table="b", value_type={"x": int}, create=True)
    memory = MemorySink("m")

    @app.agent(words, sink=[fresh, lasting, memory])
    async def read(stream: Any) -> Any:
        async for word in stream:
            yield word

    assert list(lasting_sinks(app)) == [lasting, memory]
    assert read_sinks(app, tmp_path) == {"a": [], "b": []}


class Heap(DatabaseSink):
    """Any database with a table: SQLite without its own way of being read."""

    quote = "`"
    table = "main.a"

    def __init__(self, path: Path) -> None:
        super().__init__("heap")
        self._path = path

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path)

    def apply(self, batch: Batch) -> None:
        raise AssertionError("only read")


def test_where_a_database_has_put_its_rows_does_not_matter(tmp_path: Path) -> None:
    app = App("sinks")
    heap = Heap(tmp_path / "a.db")

    @app.agent(app.topic("words"), sink=[heap])
    async def read(stream: Any) -> Any:
        async for word in stream:
            yield word

    with closing(heap.connect()) as connection:
        connection.execute("CREATE TABLE a (k)")
        connection.executemany("INSERT INTO a VALUES (?)", [("b",), ("c",), ("a",)])
        connection.commit()
    assert read_sinks(app, tmp_path) == {"heap": [{"k": "a"}, {"k": "b"}, {"k": "c"}]}


def test_an_app_has_to_be_found_by_other_processes() -> None:
    with pytest.raises(ConfigurationError, match="give it as"):
        ProcessVerification(Scenario(lambda: App("anonymous")))


def test_a_sink_in_memory_cannot_be_judged_from_outside() -> None:
    app = Path(__file__).parents[2] / "sim" / "sink_app.py"
    with pytest.raises(ConfigurationError, match="another one in every process"):
        ProcessVerification(Scenario(f"{app}:app"))


def test_a_report_counts_the_faults() -> None:
    report = ProcessReport("shop:app", rounds=2, seconds=20.04, faults={"kill": 3, "slow": 1})
    assert "2 rounds of real processes in 20.0 s, 4 faults (3 kill, 1 slow)" in str(report)


def test_the_example_project_can_be_installed(tmp_path: Path) -> None:
    project = tmp_path / "shop"
    shutil.copytree(EXAMPLES / "shop", project)
    code = "import setuptools.build_meta as meta; meta.get_requires_for_build_editable()"
    done = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-1000:]
