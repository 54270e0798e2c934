"""Requests per second of the schema registry over HTTP, and its CPU time per request.

    python tests/bench/bench_registry.py [--requests 2000] [--connections 16]
        [--other NAME=URL=PID]

A broker of ours and one registry run as processes of their own; ``--other`` names a registry that
runs already (any with Confluent's interface; its topic may lie on any broker) and is measured in
the same run, phase by phase, beside ours. CPU is that of the registry's process alone, taken from
/proc: on Linux only.

Each of N connections sends one request after the other. The schemas are Avro records of ten fields.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

CLI = [sys.executable, "-m", "onceward.streams.cli"]
READY_S = 20.0
TICKS = os.sysconf("SC_CLK_TCK")


class Target(NamedTuple):
    name: str
    url: str
    pid: int


class Request(NamedTuple):
    method: str
    path: str
    body: bytes = b""


class Figures(NamedTuple):
    """Requests per second, milliseconds that half and 99 of 100 take, microseconds of CPU."""

    rate: float
    median: float
    slow: float
    cpu: float


class Connection:
    """HTTP/1.1 over one connection that stays open; as little work as can be."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None and parts.port is not None
        self._host, self._port = parts.hostname, parts.port
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def send(self, request: Request) -> bytes:
        """The body of the answer. Raises SystemExit for one that is not 200."""
        head = (
            f"{request.method} {request.path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n"
            "Content-Type: application/vnd.schemaregistry.v1+json\r\n"
            f"Content-Length: {len(request.body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + request.body)
        status, length = await self._reader.readline(), 0
        while (line := await self._reader.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        body = await self._reader.readexactly(length)
        if b" 200 " not in status:
            raise SystemExit(f"{request.method} {request.path}: {status!r} {body[:200]!r}")
        return body


def schema(number: int) -> str:
    fields = [{"name": f"field_{at}", "type": ["null", "string"]} for at in range(9)]
    fields.append({"name": f"own_{number}", "type": ["null", "long"]})
    return json.dumps({"type": "record", "name": f"Bench{number}", "fields": fields})


def post(path: str, number: int) -> Request:
    return Request("POST", path, json.dumps({"schema": schema(number)}).encode())


def phases(prefix: str, count: int, known: Sequence[int]) -> dict[str, list[Request]]:
    """Registrations first; ``known`` are ids, filled in by the time lookups are made."""
    few = max(1, count // 4)
    subjects = [f"{prefix}-{number}" for number in range(few)]
    paths = [f"/subjects/{name}" for name in subjects]
    cycle = [number % few for number in range(count)]
    return {
        "register, new": [post(f"{paths[n]}/versions", n) for n in range(few)],
        "register, the same": [post(f"{paths[n]}/versions", n) for n in cycle],
        "schema by id": [Request("GET", f"/schemas/ids/{known[n % len(known)]}") for n in cycle],
        "one version": [Request("GET", f"{paths[n]}/versions/1") for n in cycle],
        "latest version": [Request("GET", f"{paths[n]}/versions/latest") for n in cycle],
        "look up by schema": [post(paths[n], n) for n in cycle],
        "check compatibility": [
            post(f"/compatibility/subjects/{subjects[n]}/versions/latest", n) for n in cycle
        ],
    }


def cpu_seconds(pid: int) -> float:
    """User and system time of a process with all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


async def measure(target: Target, requests: Sequence[Request], connections: int) -> Figures:
    """All requests, shared by the connections as they come free."""
    waiting = iter(requests)
    took: list[float] = []

    async def work(connection: Connection) -> None:
        for request in waiting:
            start = time.perf_counter()
            await connection.send(request)
            took.append(time.perf_counter() - start)

    pool = [Connection(target.url) for _ in range(connections)]
    await asyncio.gather(*(one.open() for one in pool))
    cpu, start = cpu_seconds(target.pid), time.perf_counter()
    await asyncio.gather(*(work(one) for one in pool))
    elapsed, used = time.perf_counter() - start, cpu_seconds(target.pid) - cpu
    await asyncio.gather(*(one.close() for one in pool))
    took.sort()
    count = len(took)
    return Figures(
        count / elapsed, took[count // 2] * 1e3, took[count * 99 // 100] * 1e3, used / count * 1e6
    )


async def ids_of(target: Target, prefix: str, count: int) -> list[int]:
    connection = Connection(target.url)
    await connection.open()
    found = []
    for number in range(count):
        answer = await connection.send(
            Request("GET", f"/subjects/{prefix}-{number}/versions/latest")
        )
        found.append(json.loads(answer)["id"])
    await connection.close()
    return found


async def compare(targets: Sequence[Target], count: int, connections: int) -> None:
    """One line per phase and target; every phase is measured on all before the next."""
    prefix = f"bench-{os.getpid()}"
    known: dict[str, list[int]] = {one.name: [1] for one in targets}
    print(f"{count} requests over {connections} connections")
    for phase in phases(prefix, 4, [1]):
        rates = []
        for target in targets:
            if phase == "schema by id":
                known[target.name] = await ids_of(target, prefix, max(1, count // 4))
            requests = phases(prefix, count, known[target.name])[phase]
            found = await measure(target, requests, connections)
            rates.append(found.rate)
            print(
                f"{phase:20} {target.name:10} {found.rate:8.0f}/s  half in {found.median:6.2f} ms"
                f"  99 % in {found.slow:7.2f} ms  CPU {found.cpu:6.0f} us"
                + (f"  {rates[0] / found.rate:5.1f}x" if len(rates) > 1 else "")
            )


@contextmanager
def running(arguments: list[str], log: Path) -> Iterator[int]:
    """A command of the CLI, from its line that says it is ready; its process id."""
    with log.open("wb") as out:
        process = subprocess.Popen([*CLI, *arguments], stdout=out, stderr=out)
        try:
            deadline = time.monotonic() + READY_S
            while b"ready" not in log.read_bytes():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"{arguments}: {log.read_text(errors='replace')[-1000:]}")
                time.sleep(0.05)
            yield process.pid
        finally:
            process.terminate()
            process.wait(20)


def other_target(text: str) -> Target:
    name, url, pid = text.split("=")
    return Target(name, url.rstrip("/"), int(pid))


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
    return port


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--requests", type=int, default=2_000)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--other", type=other_target, action="append", default=[])
    options = parser.parse_args()
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker, registry = (f"127.0.0.1:{free_port()}" for _ in range(2))
        data = ["broker", "--listen", broker, "--data", str(work / "data")]
        stack.enter_context(running(data, work / "broker.log"))
        serve = ["registry", "--listen", registry, "--broker", broker]
        pid = stack.enter_context(running(serve, work / "registry.log"))
        ours = Target("onceward", f"http://{registry}", pid)
        asyncio.run(compare([ours, *options.other], options.requests, options.connections))


if __name__ == "__main__":
    main()
