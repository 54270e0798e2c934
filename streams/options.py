"""What Faust has and this framework has not: which settings are harmless, and what is refused
and why."""

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
_AS_IT_IS = {"producer_acks": (-1, "all")}
_WEB = "web views are not supported: run a web framework beside the worker"
_WINDOWS = "windowed tables are not supported yet: make the window's start a part of the key"
_JOINS = "joins are not supported: keep one side in a table"
_REPLIES = "replies are not supported yet: send with cast and read the agent's sink topic"
_SIGNALS = "signals are not supported: use app.task for what a worker does when it starts"
_MISSING = {
    **dict.fromkeys(("page", "table_route", "topic_route", "web", "web_server"), _WEB),
    **dict.fromkeys(("tumbling", "hopping", "using_window", "relative_to_now"), _WINDOWS),
    **dict.fromkeys(("TumblingWindow", "HoppingWindow", "SlidingWindow", "Window"), _WINDOWS),
    **dict.fromkeys(("join", "left_join", "inner_join", "outer_join", "combine"), _JOINS),
    **dict.fromkeys(("ask_nowait", "map", "kvmap", "kvjoin"), _REPLIES),
    **dict.fromkeys(("GlobalTable", "SetGlobalTable"), "global tables are not supported yet"),
    "SetTable": "set tables are not supported yet: use Table(default=set) and assign after changes",
    "channel": "channels in memory are not supported: use a topic",
    "stream": "streams outside of agents are not supported: use @app.agent",
    "service": "services are not supported: use app.task",
    "Service": "services are not supported: use app.task",
    "LiveCheck": "LiveCheck is not supported",
    "discover": "modules are not searched for agents: import them where the app is made",
    "config_from_object": "give settings as arguments of App",
    "noack": "records are committed by the worker when they are handled, never by hand",
    "test_context": "there is no test_context yet: run the app on onceward.broker.Broker",
    "Schema": "schemas are not supported: give key_serializer and value_serializer",
    "Monitor": "monitors are not supported yet",
    "Sensor": "sensors are not supported yet",
    "SASLCredentials": "SASL is not supported yet",
    "SSLCredentials": "TLS is not supported yet",
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
        if name in _AS_IT_IS and value in _AS_IT_IS[name]:
            continue
        if name in _REFUSED and value is not None and value is not False:
            raise ConfigurationError(f"App({name}=...): {_REFUSED[name]}; remove it")
        if name in _REFUSED or name in _HARMLESS or name.startswith(_HARMLESS_PREFIXES):
            logger.debug("App(%s=...) has no effect here", name)
            continue
        raise ConfigurationError(f"App has no setting {name!r}")


def missing(owner: str, name: str) -> AttributeError:
    """What ``__getattr__`` raises; where Faust has such a name, it says what to do instead."""
    reason = _SIGNALS if name.startswith("on_") else _MISSING.get(name)
    message = f"{owner} has no attribute {name!r}"
    return AttributeError(message if reason is None else f"{message}: {reason}")
