"""The settings of one partition log, under Kafka's topic configuration names."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from ..errors import ErrorCode, KafkaError

UNLIMITED = -1
_MAX_LONG = (1 << 63) - 1
_DAY_MS = 24 * 60 * 60 * 1000


@dataclasses.dataclass(frozen=True, slots=True)
class LogConfig:
    """Settings of a log. Sizes in bytes, times in milliseconds; -1 is "no limit" for retention.

    Field names are the topic configuration names with underscores (``segment.ms`` ->
    ``segment_ms``); defaults are those of Apache Kafka 4.x (``LogConfig``).
    """

    cleanup_policy: frozenset[str] = frozenset({"delete"})
    compression_type: str = "producer"
    delete_retention_ms: int = _DAY_MS
    max_message_bytes: int = 1048588
    message_timestamp_type: str = "CreateTime"
    message_timestamp_after_max_ms: int = 60 * 60 * 1000
    message_timestamp_before_max_ms: int = _MAX_LONG
    max_compaction_lag_ms: int = _MAX_LONG
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    retention_bytes: int = UNLIMITED
    retention_ms: int = 7 * _DAY_MS
    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * _DAY_MS
    producer_id_expiration_ms: int = _DAY_MS

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @classmethod
    def parse(
        cls, configs: Mapping[str, str | None], defaults: LogConfig | None = None
    ) -> LogConfig:
        """Apply topic configurations (Kafka names to text) on ``defaults``.

        A None value means "the default". Raises KafkaError(INVALID_CONFIG) for a name that is not a
        log setting and for a value that does not parse or is out of range.
        """
        config = defaults if defaults is not None else cls()
        changes: dict[str, object] = {}
        for name, text in configs.items():
            if name in _WITHOUT_EFFECT:
                continue
            if name not in _NAMES:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
            if text is not None:
                changes[_NAMES[name]] = _parse_value(name, text.strip())
        return dataclasses.replace(config, **changes)  # type: ignore[arg-type]

    def describe(self) -> dict[str, str]:
        """Every setting as Kafka name -> text, as DescribeConfigs shows it."""
        described = {}
        for name, field in _NAMES.items():
            value = getattr(self, field)
            described[name] = (
                ",".join(sorted(value)) if isinstance(value, frozenset) else str(value)
            )
        return described


_NAMES: Mapping[str, str] = {
    field.name.replace("_", "."): field.name
    for field in dataclasses.fields(LogConfig)
    if field.name != "producer_id_expiration_ms"
}
"""Topic configuration name -> field. The expiry of producer ids is a setting of the broker."""

_WITHOUT_EFFECT = frozenset(
    {
        "file.delete.delay.ms",
        "flush.messages",  # every append is flushed before it is answered
        "flush.ms",
        "follower.replication.throttled.replicas",
        "index.interval.bytes",
        "leader.replication.throttled.replicas",
        "preallocate",
        "segment.index.bytes",
        "segment.jitter.ms",
        "unclean.leader.election.enable",
    }
)
"""Topic configurations of Kafka that clients may set and this log does not need."""

_CHOICES: Mapping[str, frozenset[str]] = {
    "compression.type": frozenset({"producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"}),
    "message.timestamp.type": frozenset({"CreateTime", "LogAppendTime"}),
}

_MINIMUM: Mapping[str, int] = {
    "retention.bytes": -1,
    "retention.ms": -1,
    "max.compaction.lag.ms": 1,
    "segment.bytes": 1024,  # Kafka 4.1 asks for 1 MiB; small segments are what tests need
    "segment.ms": 1,
    "min.insync.replicas": 1,
}


def _parse_value(name: str, text: str) -> object:
    if name == "cleanup.policy":
        policies = frozenset(part.strip() for part in text.split(",") if part.strip())
        if not policies <= {"delete", "compact"}:
            raise _invalid(name, text)
        return policies
    if name in _CHOICES:
        if text not in _CHOICES[name]:
            raise _invalid(name, text)
        return text
    if name == "min.cleanable.dirty.ratio":
        return _parse_ratio(name, text)
    try:
        value = int(text)
    except ValueError:
        raise _invalid(name, text) from None
    if not _MINIMUM.get(name, 0) <= value <= _MAX_LONG:
        raise _invalid(name, text)
    return value


def _parse_ratio(name: str, text: str) -> float:
    try:
        ratio = float(text)
    except ValueError:
        raise _invalid(name, text) from None
    if not 0 <= ratio <= 1:
        raise _invalid(name, text)
    return ratio


def _invalid(name: str, text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, f"Invalid value {text} for configuration {name}")
