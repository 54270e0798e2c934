"""Which segments the ``delete`` policy lets go (Kafka's ``UnifiedLog.deleteOldSegments``). Pure."""

from __future__ import annotations

from ..storage.segment_store import SegmentStore
from .config import LogConfig


def active_is_expired(store: SegmentStore, config: LogConfig, now_ms: int) -> bool:
    """Whether even the newest record is older than ``retention_ms``."""
    return bool(store.active.size) and _is_expired(store.active.max_timestamp, config, now_ms)


def oldest_may_go(
    store: SegmentStore, config: LogConfig, log_start_offset: int, now_ms: int
) -> bool:
    """Whether the oldest segment is below the log start, expired, or too much."""
    oldest = store.segments[0]
    if oldest.next_offset <= log_start_offset:
        return True
    if _is_expired(oldest.max_timestamp, config, now_ms):
        return True
    return (
        config.deletes
        and config.retention_bytes >= 0
        and store.size_bytes - oldest.size >= config.retention_bytes
    )


def _is_expired(max_timestamp: int, config: LogConfig, now_ms: int) -> bool:
    """A segment without any timestamp stays: nothing says how old it is."""
    return (
        config.deletes
        and config.retention_ms >= 0
        and max_timestamp >= 0
        and now_ms - max_timestamp > config.retention_ms
    )
