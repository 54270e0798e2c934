"""The HTTP service of the tests as a process that may be killed: what it keeps is in a database.

python -m tests.kills.http_process DATABASE HOST:PORT
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from typing import Any

from ..streams.sinks.http_service import Asked, Service
from .serving import READY


class Durable(Service):
    """Honours keys for ever: a request's rows and their keys are on disk before it answers."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS kept (at INTEGER PRIMARY KEY AUTOINCREMENT, "
            "path TEXT, key TEXT, row TEXT, UNIQUE (path, key))"
        )

    def keep(self, asked: Asked) -> None:
        for noted in (self.asked, self.together):
            noted.clear()
        self._database.execute("BEGIN IMMEDIATE")
        for line in asked.body.splitlines():
            row = json.loads(line)
            key = row.pop("id")
            inserted = self._database.execute(
                "INSERT INTO kept (path, key, row) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                (asked.path, key, json.dumps(row)),
            ).rowcount
            if not inserted:
                self._check_repeated(asked.path, key, row)
        self._database.execute("COMMIT")

    def _check_repeated(self, path: str, key: str, row: Any) -> None:
        ((kept,),) = self._database.execute(
            "SELECT row FROM kept WHERE path = ? AND key = ?", (path, key)
        )
        assert json.loads(kept) == row, f"{key} comes again as another row"


async def main(database: str, address: str) -> None:
    host, _, port = address.rpartition(":")
    server = await asyncio.start_server(Durable(database).serve, host, int(port))
    print(READY, f"{host}:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
