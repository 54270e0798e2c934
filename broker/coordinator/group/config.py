"""Settings of the group coordinator, under Kafka's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Times are in milliseconds. ``KEYS`` has their Kafka keys.

    initial_rebalance_delay_ms: 0, not Kafka's 3000: the embedded broker serves one machine, where a
        first rebalance without a pause is worth more than one rebalance saved.
    new_member_join_timeout_ms: how long a JoinGroup of a member that never completed one may be
        parked (Kafka's constant).
    """

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 0
    max_size: int = 2**31 - 1
    new_member_join_timeout_ms: int = 300_000
    offset_metadata_max_size: int = 4096
    offsets_retention_minutes: int = 7 * 24 * 60
    offsets_retention_check_interval_ms: int = 600_000

    def __post_init__(self) -> None:
        if not 0 < self.min_session_timeout_ms <= self.max_session_timeout_ms:
            raise ValueError("group.min.session.timeout.ms must be in (0, group.max...]")
        if self.initial_rebalance_delay_ms < 0 or self.max_size < 1:
            raise ValueError("group.initial.rebalance.delay.ms >= 0 and group.max.size >= 1")
        if self.offsets_retention_minutes < 1 or self.offsets_retention_check_interval_ms < 1:
            raise ValueError("offsets.retention.* must be positive")

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000

    @classmethod
    def from_kafka(cls, settings: Mapping[str, str | int]) -> GroupConfig:
        """Take the keys that concern groups from a broker's settings; raises ValueError."""
        return cls(**{KEYS[key]: int(value) for key, value in settings.items() if key in KEYS})


KEYS: Mapping[str, str] = {
    "group.min.session.timeout.ms": "min_session_timeout_ms",
    "group.max.session.timeout.ms": "max_session_timeout_ms",
    "group.initial.rebalance.delay.ms": "initial_rebalance_delay_ms",
    "group.max.size": "max_size",
    "offset.metadata.max.bytes": "offset_metadata_max_size",
    "offsets.retention.minutes": "offsets_retention_minutes",
    "offsets.retention.check.interval.ms": "offsets_retention_check_interval_ms",
}
"""Kafka key -> field of ``GroupConfig``."""
