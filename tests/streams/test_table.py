"""Tables inside agents: which key is meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from onceward.streams import Stream

from .fakes import FakeCluster
from .workers import make_app, until, worker


async def test_keys_that_follow_each_other_are_told_apart(tmp_path: Path) -> None:
    cluster = FakeCluster()
    cluster.create("words", 1)
    app = make_app(tmp_path)
    table = app.Table("table", default=list)
    found: list[Any] = []

    @app.agent(app.topic("words", value_type=str, partitions=1))
    async def write(stream: Stream[str]) -> None:
        async for word in stream:
            keys: list[Any] = [word, 1, None, "other", None, word, 1.5, True]
            for at, key in enumerate(keys):
                table[key] = [*table[key], at]
            twin = "".join(list(word))
            table[twin] = [*table[twin], "twin"]
            found.extend((key, table[key]) for key in ["a", 1, None, "other", 1.5, True])

    cluster.put("words", b"a")
    async with worker(app, cluster) as running:
        await until(lambda: len(cluster.read("app-table-changelog")) == 6, running)
    assert found == [
        ("a", [0, 5, "twin"]), (1, [1]), (None, [2, 4]), ("other", [3]), (1.5, [6]), (True, [7])
    ]  # fmt: skip
