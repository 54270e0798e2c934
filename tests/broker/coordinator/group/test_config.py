"""Settings under Kafka's names."""

from __future__ import annotations

from typing import Any

import pytest

from onceward.broker.coordinator.group.config import GroupConfig


def test_kafka_keys_are_taken_and_others_ignored() -> None:
    config = GroupConfig.from_kafka(
        {
            "group.initial.rebalance.delay.ms": "3000",
            "group.max.size": 5,
            "offsets.retention.minutes": "2",
            "log.dirs": "/data",
        }
    )
    assert (config.initial_rebalance_delay_ms, config.max_size) == (3000, 5)
    assert config.offsets_retention_ms == 120_000


def test_the_first_rebalance_is_not_delayed_by_default() -> None:
    assert GroupConfig().initial_rebalance_delay_ms == 0


@pytest.mark.parametrize(
    "settings",
    [
        {"min_session_timeout_ms": 2, "max_session_timeout_ms": 1},
        {"min_session_timeout_ms": 0},
        {"initial_rebalance_delay_ms": -1},
        {"max_size": 0},
        {"offsets_retention_minutes": 0},
        {"offsets_retention_check_interval_ms": 0},
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        GroupConfig(**settings)
