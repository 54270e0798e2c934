"""The check of the leader epoch a client believes in (KIP-320)."""

from __future__ import annotations

from ..errors import ErrorCode, KafkaError


def check_leader_epoch(claimed: int, current: int) -> None:
    """-1 claims nothing. Raises KafkaError: 74 when the client is behind, 75 when it is ahead."""
    if claimed < 0 or claimed == current:
        return
    if claimed < current:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
