"""A worker's part of a file sink that dies at a step of its disk: ``path step``.

Takes the partition over and commits three batches of ten records from where the sink is.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

from onceward.streams.sinks import FilesSink
from onceward.streams.sinks.files_disk import Disk

from .driven import driven


class Dying(Disk):
    """The process is killed before call number ``at``, or not at all when there are fewer."""

    def __init__(self, at: int) -> None:
        self.left = at

    def step(self) -> None:
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1

    def write(self, path: Path, data: bytes) -> None:
        self.step()
        super().write(path, data[: len(data) // 2])
        self.step()
        super().write(path, data)

    def move(self, old: Path, new: Path) -> None:
        self.step()
        super().move(old, new)

    def remove(self, path: Path) -> None:
        self.step()
        super().remove(path)

    def sync(self, directories: Iterable[Path]) -> None:
        self.step()
        super().sync(directories)


async def main(path: str, step: int) -> None:
    sink = FilesSink(path, partition_by="digit", disk=Dying(step))
    one = await driven(sink)
    for _ in range(3):
        start = one.claim.next_offset
        await one.write(*({"id": n, "digit": n % 2} for n in range(start, start + 10)))
    await sink.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
