"""``LocalCluster`` for tests that are no coroutines: the same methods, waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..agent import Agent
    from ..app import App
    from ..table import Table
    from ..topic import GivenHeaders, Topic
    from .local import LocalCluster
    from .loop_thread import LoopThread
    from .records import OutputRecord


class BlockingCluster:
    """What ``with LocalCluster(...)`` gives; see there. Broker and workers run in a thread."""

    def __init__(self, cluster: LocalCluster, thread: LoopThread) -> None:
        self._cluster = cluster
        self._thread = thread

    @property
    def app(self) -> App:
        return self._cluster.app

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    @property
    def registry(self) -> str | None:
        return self._cluster.registry

    def send(
        self,
        topic: str | Topic | Agent,
        key: Any = None,
        value: Any = None,
        *,
        partition: int | None = None,
        timestamp: float | None = None,
        headers: GivenHeaders | None = None,
    ) -> int:
        return self._thread.run(
            self._cluster.send(
                topic, key, value, partition=partition, timestamp=timestamp, headers=headers
            )
        )

    def read(
        self, topic: str | Topic | Agent, n: int | None = None, timeout: float = 10.0
    ) -> list[OutputRecord]:
        return self._thread.run(self._cluster.read(topic, n, timeout))

    def wait_until_processed(self, timeout: float = 10.0) -> None:
        self._thread.run(self._cluster.wait_until_processed(timeout))

    def table(self, table: str | Table) -> dict[Any, Any]:
        async def read() -> dict[Any, Any]:
            return self._cluster.table(table)

        return self._thread.run(read())

    def kill_worker(self, number: int) -> None:
        self._thread.run(self._cluster.kill_worker(number))

    def restart_worker(self, number: int) -> None:
        self._thread.run(self._cluster.restart_worker(number))
