"""Faust's settings that this framework does not have: which are harmless and which must be
refused."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from .errors import ConfigurationError

logger = logging.getLogger(__name__)

_USED = frozenset({"broker_commit_interval", "broker_commit_every"})
_REFUSED = {
    "broker_credentials": "SASL is not supported yet",
    "ssl_context": "TLS is not supported yet",
    "producer_partitioner": "records are partitioned as Kafka's default partitioner does",
    "consumer_group_instance_id": "every worker slot has one of its own already",
    "stream_publish_on_commit": "outputs are always published with the commit",
    "producer_acks": "every record is acknowledged by all replicas in sync",
}
_HARMLESS_PREFIXES = ("web_", "stream_", "worker_", "reply_", "table_", "producer_", "consumer_")
_HARMLESS = frozenset(
    {
        "autodiscover",
        "origin",
        "env_prefix",
        "timezone",
        "cache",
        "tabledir",
        "blocking_timeout",
        "logging_config",
        "loghandlers",
        "topic_disable_leader",
        "agent_supervisor",
        "canonical_url",
        "id_format",
        "broker_api_version",
        "broker_check_crcs",
        "broker_max_poll_interval",
        "broker_max_poll_records",
        "broker_commit_livelock_soft_timeout",
        "cython_optimizations",
        "recovery_consistency_check",
        "store_check_exists",
    }
)


def check_faust_options(options: Mapping[str, Any]) -> None:
    """Raises ConfigurationError for settings that would promise something, and for unknown ones."""
    for name, value in options.items():
        if name in _USED:
            continue
        if name in _REFUSED and value not in (None, False):
            raise ConfigurationError(f"App({name}=...): {_REFUSED[name]}; remove it")
        if name in _REFUSED or name in _HARMLESS or name.startswith(_HARMLESS_PREFIXES):
            logger.debug("App(%s=...) has no effect here", name)
            continue
        raise ConfigurationError(f"App has no setting {name!r}")
