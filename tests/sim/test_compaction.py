"""Workers crash and restore their tables while the broker compacts the changelogs."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceward.broker.client import Producer
from onceward.broker.log.partition_log import PartitionLog
from onceward.streams.testing.scenario import Prepared, Scenario
from onceward.streams.testing.simulation import Simulation

_WORD_COUNT = Path(__file__).parents[2] / "examples" / "word_count.py"
_SMALL = {
    "log.cleaner.backoff.ms": "20",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.segment.bytes": "1024",
}


def test_tables_are_right_when_their_changelogs_are_compacted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    defaults = Producer.__init__.__kwdefaults__ or {}
    monkeypatch.setattr(Producer.__init__, "__kwdefaults__", {**defaults, "max_batch_bytes": 600})
    replaced: list[str] = []
    replace = PartitionLog.replace_segments

    def counted(log: PartitionLog, *arguments: object) -> None:
        replaced.append(log.tp.topic)
        replace(log, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(PartitionLog, "replace_segments", counted)
    scenario = Scenario(f"{_WORD_COUNT}:app", records=80, broker_config=_SMALL)
    simulation = Simulation(Prepared(scenario))
    for seed in range(4):
        outcome = simulation.run(seed)
        assert not outcome.anomalies, f"seed {seed}: {outcome.anomalies[0].sentence}"
    assert set(replaced) == {"word-count-counts-changelog"}
    assert len(replaced) > 2
