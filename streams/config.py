"""Settings of an app: validated when the app is made, so that no promise is broken later."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import TypeVar

from .errors import ConfigurationError


class ProcessingGuarantee(enum.StrEnum):
    """When consumed offsets are committed relative to processing.

    EXACTLY_ONCE   in one transaction with everything the records caused
    AT_LEAST_ONCE  after their effects are acknowledged: a crash repeats effects
    AT_MOST_ONCE   before they are processed: a crash loses effects
    """

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"


class ErrorPolicy(enum.StrEnum):
    """What happens to a record that cannot be decoded, or whose agent raises.

    STOP         nothing from it on is committed, the worker stops with exit code 1
    DEAD_LETTER  its effects are undone and it goes to the dead letter topic in the same transaction
    """

    STOP = "stop"
    DEAD_LETTER = "dead_letter"


E = TypeVar("E", bound=enum.StrEnum)
STORES = ("memory://", "rocksdb://")
_ID = re.compile(r"[a-zA-Z0-9._-]{1,200}")


@dataclass(slots=True)
class Settings:
    """Everything configurable about an app. Times ending in ``_ms`` are milliseconds, else seconds.

    ``commit_records`` bounds how many records one transaction covers, ``buffer_records`` how many
    fetched records wait per task before its partitions are paused.
    """

    id: str
    broker: str | None
    processing_guarantee: ProcessingGuarantee
    commit_interval: float
    commit_records: int
    buffer_records: int
    datadir: str
    store: str
    topic_partitions: int
    topic_replication_factor: int
    topic_allow_declare: bool
    key_serializer: object
    value_serializer: object
    on_decode_error: ErrorPolicy
    on_agent_error: ErrorPolicy
    dead_letter_topic: str
    consumer_auto_offset_reset: str
    broker_session_timeout: float
    broker_heartbeat_interval: float
    broker_rebalance_timeout: float
    broker_request_timeout: float
    broker_client_id: str
    producer_compression_type: str | None
    transaction_timeout: float
    connection_grace: float
    debug: bool = False

    def validate(self) -> None:
        """Raises ConfigurationError with one sentence that says what to change."""
        if not _ID.fullmatch(self.id):
            raise ConfigurationError(
                f"app id {self.id!r} must be 1 to 200 letters, digits, '.', '_' or '-': "
                "it names topics and the consumer group"
            )
        if self.store not in STORES:
            raise ConfigurationError(f"store {self.store!r} is unknown; use one of {STORES}")
        if self.consumer_auto_offset_reset not in ("earliest", "latest", "none"):
            raise ConfigurationError("consumer_auto_offset_reset must be earliest, latest or none")
        for name in ("commit_interval", "broker_session_timeout", "transaction_timeout"):
            if getattr(self, name) <= 0:
                raise ConfigurationError(f"{name} must be more than 0 seconds")
        for name in ("commit_records", "buffer_records", "topic_partitions"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} must be at least 1")
        if self.broker_heartbeat_interval * 3 > self.broker_session_timeout:
            raise ConfigurationError(
                "broker_session_timeout must be at least three times broker_heartbeat_interval, "
                "or one lost heartbeat expels the worker"
            )
        if self.commit_interval >= self.broker_rebalance_timeout:
            raise ConfigurationError(
                "commit_interval must be shorter than broker_rebalance_timeout: a worker commits "
                "before it gives partitions away"
            )


def choice(kind: type[E], name: str, value: str | enum.StrEnum) -> E:
    """The member of ``kind`` that ``value`` names; also accepts another library's enum of
    strings."""
    text = str(getattr(value, "value", value))
    try:
        return kind(text)
    except ValueError:
        allowed = ", ".join(repr(str(member)) for member in kind)
        raise ConfigurationError(f"{name}={text!r} is not one of {allowed}") from None


def broker_address(broker: str | list[str] | tuple[str, ...] | None) -> str | None:
    """``kafka://a:1;b:2`` or a list of such becomes ``a:1,b:2``; None stays None."""
    if broker is None:
        return None
    parts = [broker] if isinstance(broker, str) else [str(part) for part in broker]
    hosts = [host for part in parts for host in re.split(r"[;,]", part)]
    return ",".join(re.sub(r"^[a-z+]+://", "", host.strip()).rstrip("/") for host in hosts if host)
