"""Real processes that are killed, stopped and started again: a broker, and workers."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from abc import ABC, abstractmethod
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from onceward.broker.client import KafkaError

from ..cli.processes import BrokerProcess, send_signal
from .cluster import BROKER
from .processes_worker import GAVE_UP, Told

_IDLE_S = 20.0
"""A broker nobody talks to any more ends by itself, should its parent be killed."""
_RESTART_S = 0.3
"""What a process manager takes to start a process again that ended by itself."""
_STOP_S = 20.0
_TELL_S = 5.0
_LAST_WORDS = 1_500
"""Characters of a log that are shown."""


@dataclass(frozen=True)
class Launch:
    """How worker processes are started: ``target`` is MODULE:APP, ``env`` their environment."""

    target: str
    env: Mapping[str, str]
    settings: str = "{}"


class Keeper(Protocol):
    """Who is told what happens to processes, and asked what to do."""

    def note(self, host: str, what: str, detail: str = "") -> None: ...

    def ended_by_itself(self, host: Host, code: int) -> bool:
        """Whether it may be started again."""

    async def calm_or(self, delay_s: float) -> None:
        """Sleep, but no longer than until everything is set right."""


class Host(ABC):
    """A process that is started again when it ended, until ``end``."""

    def __init__(self, name: str, keeper: Keeper, log: Path) -> None:
        self.name = name
        self.log = log
        self.restarts = 0
        self._keeper = keeper
        self._struck = False
        self._back_at = 0.0
        self._ending = False

    @property
    @abstractmethod
    def process(self) -> Process | None:
        """The last one that was started."""

    @abstractmethod
    async def launch(self) -> None:
        """Start a process. Raises KafkaError."""

    def last_words(self) -> str:
        """The end of its log."""
        if not self.log.exists():
            return ""
        return self.log.read_text(encoding="utf-8", errors="replace")[-_LAST_WORDS:].strip()

    @property
    def last_line(self) -> str:
        return self.last_words().rsplit("\n", 1)[-1] or "no message"

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.returncode is None

    async def keep(self) -> None:
        """Keep a process running; the first one runs already."""
        loop = asyncio.get_running_loop()
        while self.process is not None:
            code = await self.process.wait()
            if self._ending:
                return
            delay_s = _RESTART_S
            if self._struck and (code <= 0 or code == GAVE_UP):
                delay_s = self._back_at - loop.time()
            elif not self._keeper.ended_by_itself(self, code):
                return
            self._struck = False
            await self._keeper.calm_or(delay_s)
            self._keeper.note(self.name, "restart")
            self.restarts += 1
            try:
                await self.launch()
            except KafkaError:
                if not self._struck:  # else it was killed while it started
                    raise

    async def kill(self, restart_s: float) -> None:
        """SIGKILL. Nothing happens to a process that is dead."""
        await self._strike(signal.SIGKILL, restart_s)

    async def terminate(self, restart_s: float) -> None:
        """SIGTERM; it is started again at the earliest when it ended."""
        await self._strike(signal.SIGTERM, restart_s)

    async def _strike(self, number: signal.Signals, restart_s: float) -> None:
        if not self.alive:
            return
        self._struck = True
        self._back_at = asyncio.get_running_loop().time() + restart_s
        self._signal(number)
        if number is signal.SIGKILL and self.process is not None:
            await self.process.wait()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self.process is not None:
            send_signal(self.process, number)

    async def end(self) -> int:
        """SIGTERM, and SIGKILL when that takes too long; returns the exit code."""
        self._ending = True
        if self.process is None:
            return 0
        self.resume()
        self._signal(signal.SIGTERM)
        try:
            return await asyncio.wait_for(self.process.wait(), _STOP_S)
        except TimeoutError:
            return await self.end_now()

    async def end_now(self) -> int:
        """SIGKILL. Idempotent."""
        self._ending = True
        if self.process is None:
            return 0
        self._signal(signal.SIGKILL)
        return await self.process.wait()


class BrokerHost(Host):
    """The broker; it keeps its port and its data."""

    def __init__(self, keeper: Keeper, work: Path, config: Mapping[str, str]) -> None:
        super().__init__(BROKER, keeper, work / "broker.log")
        options = [part for pair in config.items() for part in ("--config", "=".join(pair))]
        self._broker = BrokerProcess(
            work / "broker", self.log, "--exit-when-idle", str(_IDLE_S), *options
        )

    @property
    def process(self) -> Process | None:
        return self._broker.process

    @property
    def address(self) -> str:
        return self._broker.address

    async def launch(self) -> None:
        await self._broker.start()


class WorkerHost(Host):
    """One worker, with a data directory of its own, as if on a machine of its own."""

    def __init__(self, name: str, keeper: Keeper, work: Path, launch: Launch) -> None:
        super().__init__(name, keeper, work / f"{name}.log")
        self.address = ""
        self._datadir = work / name
        self._shared = work / "shared"
        self._launch = launch
        self._process: Process | None = None
        self._asked = 0

    @property
    def process(self) -> Process | None:
        return self._process

    async def launch(self) -> None:
        self._datadir.mkdir(exist_ok=True)
        launch = self._launch
        with self.log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "onceward.streams.testing.processes_worker",
                launch.target,
                self.address,
                str(self._datadir),
                launch.settings,
                stdin=PIPE,
                stdout=output,
                stderr=output,
                cwd=self._shared,
                env=launch.env,
            )

    async def tell(self) -> Told | None:
        """What it holds; None when it does not answer."""
        process = self._process
        if process is None or process.stdin is None or not self.alive:
            return None
        self._asked += 1
        process.stdin.write(b"tell %d\n" % self._asked)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _TELL_S
        while loop.time() < deadline:
            told = Told.read(self._datadir, self._asked)
            if told is not None:
                return told
            await asyncio.sleep(0.02)
        return None


def environment(directory: Path) -> dict[str, str]:
    """Of the processes of a run: they find the modules this process finds."""
    here = os.getcwd()
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path or here for path in sys.path),
        "PYTHONUNBUFFERED": "1",
        "ONCEWARD_VERIFY_DIR": str(directory),
    }
