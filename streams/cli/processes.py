"""Child processes of the command line: started, watched, killed and restarted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from pathlib import Path

from onceward.broker.client import ErrorCode, KafkaError

from .embedded import READY, START_TIMEOUT_S

STOP_TIMEOUT_S = 20.0


async def start(
    *arguments: str, log: Path | None = None, env: Mapping[str, str] | None = None
) -> Process:
    """``onceward ARGUMENTS`` as a child; its output goes to ``log`` or to our own stderr."""
    command = [sys.executable, "-m", "onceward.streams.cli", *arguments]
    if log is None:
        return await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, env=env)
    with log.open("ab") as output:
        return await asyncio.create_subprocess_exec(
            *command, stdin=DEVNULL, stdout=output, stderr=output, env=env
        )


def send_signal(process: Process, number: signal.Signals) -> None:
    """To a process that has not ended as far as we know.

    ``Process.send_signal`` looks first whether it ended and takes its exit code from under the
    event loop, which then makes one up. Until the loop took it the pid is nobody else's.
    """
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


async def stop(process: Process, *, timeout_s: float = STOP_TIMEOUT_S) -> int:
    """SIGTERM, and SIGKILL when that is not heeded in time; returns the exit code."""
    if process.returncode is None:
        send_signal(process, signal.SIGTERM)
        try:
            return await asyncio.wait_for(process.wait(), timeout_s)
        except TimeoutError:
            send_signal(process, signal.SIGKILL)
    return await process.wait()


async def kill(process: Process) -> None:
    """SIGKILL, and the zombie collected."""
    send_signal(process, signal.SIGKILL)
    await process.wait()


class BrokerProcess:
    """A broker that can be killed and started again on the same data and port.

    ``options`` are those of ``onceward broker``, besides the data and the address.
    """

    def __init__(self, data: Path, log: Path, *options: str) -> None:
        self.data = data
        self.log = log
        self.address = ""
        self._options = options
        self._process: Process | None = None

    @property
    def process(self) -> Process | None:
        """The last one that was started."""
        return self._process

    async def start(self) -> None:
        """Returns when clients may connect. Raises KafkaError(BROKER_NOT_AVAILABLE)."""
        command = ["-m", "onceward.streams.cli", "broker", "--data", str(self.data)]
        command += ["--listen", self.address or "127.0.0.1:0", *self._options]
        with self.log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable, *command, stdin=DEVNULL, stdout=PIPE, stderr=errors
            )
        self._process = process
        assert process.stdout is not None
        try:
            line = (await asyncio.wait_for(process.stdout.readline(), START_TIMEOUT_S)).decode()
        except TimeoutError:
            line = ""
        if not line.startswith(READY):
            await kill(process)
            raise KafkaError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"the broker did not start; see {self.log}"
            )
        self.address = line.removeprefix(READY).strip()

    async def kill(self) -> None:
        if self._process is not None:
            await kill(self._process)

    async def stop(self) -> None:
        if self._process is not None:
            await stop(self._process)


class WorkerPool:
    """Workers of one app, kept at a number: one that dies by a signal is started again at once."""

    def __init__(
        self, target: str, *, workers: int, broker: str, datadir: Path, log: Path | None,
        env: Mapping[str, str] | None = None, options: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self._arguments = (
            "worker",
            target,
            "--broker",
            broker,
            "--datadir",
            str(datadir),
            *options,
        )
        self._workers = workers
        self._log = log
        self._env = env
        self._processes: list[Process] = []
        self._tasks: list[asyncio.Task[int]] = []
        self._stopping = False
        self.restarts = 0

    async def start(self) -> None:
        for index in range(self._workers):
            self._processes.append(await self._spawn())
            self._tasks.append(asyncio.create_task(self._watch(index)))

    async def _spawn(self) -> Process:
        return await start(*self._arguments, log=self._log, env=self._env)

    async def _watch(self, index: int) -> int:
        """Returns the exit code of the first end that is not a death by signal."""
        loop = asyncio.get_running_loop()
        quick_deaths = 0
        while True:
            started = loop.time()
            code = await self._processes[index].wait()
            if code >= 0 or self._is_stopping():
                return code
            quick_deaths = quick_deaths + 1 if loop.time() - started < 1 else 0
            if quick_deaths > 3:  # something kills it over and over: do not spin
                await asyncio.sleep(min(0.1 * 2**quick_deaths, 5))
            self.restarts += 1
            process = await self._spawn()
            self._processes[index] = process
            if self._is_stopping():  # it was asked for while this one was being started
                return await stop(process)

    def _is_stopping(self) -> bool:
        return self._stopping

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def kill(self, index: int) -> bool:
        """SIGKILL one worker; it is restarted at once. False: it is dead already, and one that dies
        over and over again is given a pause."""
        if self._processes[index].returncode is not None:
            return False
        send_signal(self._processes[index], signal.SIGKILL)
        return True

    @property
    def ended(self) -> bool:
        """Whether a worker ended by itself: an error that a restart would only repeat."""
        return any(task.done() for task in self._tasks)

    async def wait(self) -> int:
        """Until a worker ends by itself; returns its exit code."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        return max(task.result() for task in done)

    async def finish(self) -> int:
        """Until all have ended by themselves, or one with an error; returns the worst exit code."""
        pending, worst = set(self._tasks), 0
        while pending and worst == 0:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            worst = max(task.result() for task in done)
        return worst

    async def stop(self) -> int:
        """SIGTERM to all; returns the worst exit code (a worker killed by us counts as 1)."""
        self._stopping = True
        codes = await asyncio.gather(*(stop(process) for process in self._processes))
        await asyncio.gather(*self._tasks)
        return max((code if code >= 0 else 1 for code in codes), default=0)
