"""The positions in MySQL, and whose session each belongs to. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from onceward.broker.client import TopicPartition

from .positions import Claim, Execute, PositionTable, Start

TABLES: Final = ("onceward_positions", "onceward_refused", "onceward_sessions")
"""What there has to be, with the rows in the same transactions."""
_NAME: Final = "VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
_TOPIC: Final = "VARCHAR(249) CHARACTER SET ascii COLLATE ascii_bin NOT NULL"
"""A topic's name is not longer, and four texts must fit into a key of 3072 bytes."""
_PLACE: Final = f"app {_NAME}, sink {_NAME}, topic {_TOPIC}, `partition` INTEGER NOT NULL"
_KEY: Final = "app, sink, topic, `partition`"
_CREATE: Final = (
    f"CREATE TABLE IF NOT EXISTS onceward_positions ({_PLACE}, next_offset BIGINT NOT NULL, "
    f"epoch BIGINT NOT NULL, effects BIGINT NOT NULL, PRIMARY KEY ({_KEY})) ENGINE = InnoDB",
    f"CREATE TABLE IF NOT EXISTS onceward_refused ({_PLACE}, `offset` BIGINT NOT NULL, "
    f"agent {_NAME}, number INTEGER NOT NULL, reason LONGTEXT CHARACTER SET utf8mb4 NOT NULL, "
    f"PRIMARY KEY ({_KEY}, `offset`, agent, number)) ENGINE = InnoDB",
    f"CREATE TABLE IF NOT EXISTS onceward_sessions ({_PLACE}, "
    "session VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, "
    f"PRIMARY KEY ({_KEY})) ENGINE = InnoDB",
)


class MySqlPositions(PositionTable):
    """As elsewhere; what ``session`` returns then is written down before a partition is taken over
    by it."""

    def __init__(self, app: str, sink: str, session: Callable[[], str]) -> None:
        super().__init__(app, sink, placeholder="%s", quote="`")
        self._session = session

    def create(self, execute: Execute) -> None:
        for statement in _CREATE:
            execute(statement, ())

    def take_over(self, execute: Execute, tp: TopicPartition, start: Start) -> Claim | None:
        execute(
            f"INSERT INTO onceward_sessions ({_KEY}, session) VALUES (%s, %s, %s, %s, %s) "
            "ON DUPLICATE KEY UPDATE session = VALUES(session)",
            (*self._owner, *tp, self._session()),
        )
        return super().take_over(execute, tp, start)

    def session_of(self, execute: Execute, tp: TopicPartition) -> str | None:
        """Whose it is, or is about to become if the isolation level shows what is not committed."""
        found = execute(
            f"SELECT session FROM onceward_sessions WHERE {self._mine}", (*self._owner, *tp)
        ).fetchone()
        return None if found is None else str(found[0])
