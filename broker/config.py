"""Broker configuration under Kafka's own names.

``BROKER_CONFIGS`` is the whole vocabulary: type, default and what it is for. A key Kafka knows and
we have no use for is accepted with a warning (so that a server.properties of a real cluster
starts); a key nobody knows is refused. Refused as well is what would be less safe without us saying
so at the start: listeners with TLS or SASL, and an authorizer.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from .errors import ErrorCode, KafkaError
from .unused_configs import is_unused

logger = logging.getLogger(__name__)


class ConfigType(enum.IntEnum):
    """Types as DescribeConfigs reports them (``DescribeConfigsResponse.ConfigType``)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigKey(NamedTuple):
    """One setting. ``default`` is its text on the wire; None means Kafka reports null."""

    name: str
    type: ConfigType
    default: str | None
    documentation: str
    minimum: float | None = None
    choices: tuple[str, ...] = ()
    dynamic: bool = False

    def check(self, value: str) -> None:
        """Raise KafkaError(INVALID_CONFIG) when the text is not a value of this setting."""
        problem = _problem(self, value.strip())
        if problem:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Invalid value {value} for configuration {self.name}: {problem}",
            )


_LIMITS: Mapping[ConfigType, int] = {
    ConfigType.SHORT: 2**15,
    ConfigType.INT: 2**31,
    ConfigType.LONG: 2**63,
}


def _problem(key: ConfigKey, value: str) -> str | None:
    if key.type is ConfigType.BOOLEAN:
        return None if value.lower() in ("true", "false") else "it must be true or false"
    if key.type in (ConfigType.INT, ConfigType.SHORT, ConfigType.LONG, ConfigType.DOUBLE):
        return _number_problem(key, value)
    if key.choices:
        given = [value]
        if key.type is ConfigType.LIST:
            # An empty list is a value: cleanup.policy "" keeps everything.
            given = [part.strip() for part in value.split(",")] if value else []
        if not all(part in key.choices for part in given):
            return f"it must be one of {', '.join(key.choices)}"
    return None


def _number_problem(key: ConfigKey, value: str) -> str | None:
    try:
        number = float(value) if key.type is ConfigType.DOUBLE else int(value)
    except ValueError:
        return "it is not a number"
    limit = _LIMITS.get(key.type)
    if limit is not None and not -limit <= number < limit:
        return f"it does not fit {key.type.name}"
    if key.minimum is not None and number < key.minimum:
        return f"it must be at least {key.minimum:g}"
    return None


def _key(
    name: str,
    kind: ConfigType,
    default: str | None,
    documentation: str,
    *,
    minimum: float | None = None,
    choices: tuple[str, ...] = (),
    dynamic: bool = False,
) -> ConfigKey:
    return ConfigKey(name, kind, default, documentation, minimum, choices, dynamic)


_BOOLEAN, _INT, _LONG, _STRING, _LIST, _DOUBLE = (
    ConfigType.BOOLEAN,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.STRING,
    ConfigType.LIST,
    ConfigType.DOUBLE,
)
_COMPRESSIONS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_DAY_MS = 24 * 60 * 60 * 1000

_SERVER_KEYS = (
    _key("node.id", _INT, "1", "Id of this broker.", minimum=0),
    _key("broker.id", _INT, "1", "Id of this broker (old name).", minimum=-1),
    _key("listeners", _STRING, None, "Address the broker listens on."),
    _key("advertised.listeners", _STRING, None, "Address given to clients; default: as connected."),
    _key("authorizer.class.name", _STRING, "", "Always empty: there is no access control."),
    _key("log.dirs", _STRING, None, "Data directory."),
    _key("auto.create.topics.enable", _BOOLEAN, "true", "Create topics when first asked for."),
    _key("delete.topic.enable", _BOOLEAN, "true", "Allow topics to be deleted."),
    _key("num.partitions", _INT, "1", "Partitions of a topic that does not say.", minimum=1),
    _key("default.replication.factor", _INT, "1", "Always 1: there is one node.", minimum=1),
    _key("socket.request.max.bytes", _INT, "104857600", "Largest request.", minimum=1),
    _key("max.connections", _INT, "2147483647", "Most connections at a time.", minimum=0),
    _key("connections.max.idle.ms", _LONG, "600000", "Close connections idle longer.", minimum=1),
    _key("fetch.max.bytes", _INT, "57671680", "Most bytes of one Fetch answer.", minimum=1024),
    _key(
        "log.flush.interval.messages",
        _LONG,
        "9223372036854775807",
        "Not used: every acknowledged record is flushed.",
        minimum=1,
    ),
    _key("log.cleaner.backoff.ms", _LONG, "15000", "How often to compact.", minimum=0),
    _key("log.cleaner.enable", _BOOLEAN, "true", "Whether compacted topics are compacted."),
    _key(
        "log.retention.check.interval.ms",
        _LONG,
        "300000",
        "How often retention is applied.",
        minimum=1,
    ),
    _key(
        "log.segment.delete.delay.ms",
        _LONG,
        "60000",
        "How long files of a deleted segment stay.",
        minimum=0,
    ),
    _key(
        "producer.id.expiration.ms",
        _INT,
        str(_DAY_MS),
        "Forget an idle producer's sequences after this.",
        minimum=1,
    ),
    _key("group.min.session.timeout.ms", _INT, "6000", "Shortest session timeout."),
    _key("group.max.session.timeout.ms", _INT, "1800000", "Longest session timeout."),
    _key(
        "group.initial.rebalance.delay.ms",
        _INT,
        "0",
        "How long an empty group waits for more members before its first generation.",
        minimum=0,
    ),
    _key("group.max.size", _INT, "2147483647", "Most members of a group.", minimum=1),
    _key("offset.metadata.max.bytes", _INT, "4096", "Largest metadata of a commit."),
    _key("offsets.topic.num.partitions", _INT, "1", "Partitions of __consumer_offsets.", minimum=1),
    _key("offsets.retention.minutes", _INT, "10080", "Keep offsets of empty groups.", minimum=1),
    _key(
        "offsets.retention.check.interval.ms",
        _LONG,
        "600000",
        "How often offsets expire.",
        minimum=1,
    ),
    _key(
        "transaction.state.log.num.partitions",
        _INT,
        "1",
        "Partitions of __transaction_state.",
        minimum=1,
    ),
    _key("transaction.max.timeout.ms", _INT, "900000", "Longest transaction timeout.", minimum=1),
    _key(
        "add.partitions.to.txn.retry.backoff.max.ms",
        _INT,
        "100",
        "How long a new transaction waits for the markers of the previous one.",
        minimum=0,
    ),
    _key(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        _INT,
        "3600000",
        "How often idle transactional ids are looked for.",
        minimum=1,
    ),
    _key(
        "transactional.id.expiration.ms",
        _INT,
        "604800000",
        "Forget an idle transactional id after this.",
        minimum=1,
    ),
)

_PROTOCOL_MAP = "listener.security.protocol.map"

_IGNORED_KEYS = tuple(
    _key(name, _STRING, default, "Accepted and not used.")
    for name, default in (
        ("process.roles", "broker,controller"),
        ("controller.quorum.voters", ""),
        ("controller.listener.names", None),
        ("inter.broker.listener.name", None),
        (_PROTOCOL_MAP, None),
        ("num.network.threads", "3"),
        ("num.io.threads", "8"),
        ("num.recovery.threads.per.data.dir", "2"),
        ("socket.send.buffer.bytes", "102400"),
        ("socket.receive.buffer.bytes", "102400"),
        ("offsets.topic.replication.factor", "1"),
        ("transaction.state.log.replication.factor", "1"),
        ("transaction.state.log.min.isr", "1"),
        ("share.coordinator.state.topic.replication.factor", "1"),
        ("share.coordinator.state.topic.min.isr", "1"),
        ("replica.lag.time.max.ms", "30000"),
        ("unclean.leader.election.enable", "false"),
        ("compression.gzip.level", "-1"),
        ("compression.lz4.level", "9"),
        ("compression.zstd.level", "3"),
        ("log.dir", None),
        ("transaction.abort.timed.out.transaction.cleanup.interval.ms", "10000"),
    )
)

TOPIC_CONFIGS: Mapping[str, ConfigKey] = {
    key.name: key
    for key in (
        _key(
            "cleanup.policy",
            _LIST,
            "delete",
            "What to do with old data.",
            choices=("compact", "delete"),
            dynamic=True,
        ),
        _key(
            "compression.type",
            _STRING,
            "producer",
            "Batches are kept as the producer sent them.",
            choices=_COMPRESSIONS,
            dynamic=True,
        ),
        _key("compression.gzip.level", _INT, "-1", "Not used.", dynamic=True),
        _key("compression.lz4.level", _INT, "9", "Not used.", dynamic=True),
        _key("compression.zstd.level", _INT, "3", "Not used.", dynamic=True),
        _key(
            "delete.retention.ms", _LONG, str(_DAY_MS), "Keep tombstones.", minimum=0, dynamic=True
        ),
        _key(
            "file.delete.delay.ms", _LONG, "60000", "Keep deleted files.", minimum=0, dynamic=True
        ),
        _key("flush.messages", _LONG, str(2**63 - 1), "Not used.", minimum=1, dynamic=True),
        _key("flush.ms", _LONG, str(2**63 - 1), "Not used.", minimum=0, dynamic=True),
        _key("follower.replication.throttled.replicas", _LIST, "", "Not used.", dynamic=True),
        _key("leader.replication.throttled.replicas", _LIST, "", "Not used.", dynamic=True),
        _key(
            "index.interval.bytes",
            _INT,
            "4096",
            "Space between index entries.",
            minimum=0,
            dynamic=True,
        ),
        _key("local.retention.bytes", _LONG, "-2", "Not used.", minimum=-2, dynamic=True),
        _key("local.retention.ms", _LONG, "-2", "Not used.", minimum=-2, dynamic=True),
        _key(
            "max.compaction.lag.ms",
            _LONG,
            str(2**63 - 1),
            "Compact no later.",
            minimum=1,
            dynamic=True,
        ),
        _key(
            "max.message.bytes", _INT, "1048588", "Largest record batch.", minimum=0, dynamic=True
        ),
        _key(
            "message.timestamp.after.max.ms",
            _LONG,
            "3600000",
            "How far ahead of the broker a record may be.",
            minimum=0,
            dynamic=True,
        ),
        _key(
            "message.timestamp.before.max.ms",
            _LONG,
            str(2**63 - 1),
            "How far behind the broker a record may be.",
            minimum=0,
            dynamic=True,
        ),
        _key(
            "message.timestamp.type",
            _STRING,
            "CreateTime",
            "Whose time a record carries.",
            choices=("CreateTime", "LogAppendTime"),
            dynamic=True,
        ),
        _key(
            "min.cleanable.dirty.ratio",
            _DOUBLE,
            "0.5",
            "Compact when dirtier.",
            minimum=0,
            dynamic=True,
        ),
        _key("min.compaction.lag.ms", _LONG, "0", "Compact no earlier.", minimum=0, dynamic=True),
        _key(
            "min.insync.replicas",
            _INT,
            "1",
            "Always 1: there is one node.",
            minimum=1,
            dynamic=True,
        ),
        _key("preallocate", _BOOLEAN, "false", "Not used.", dynamic=True),
        _key("remote.storage.enable", _BOOLEAN, "false", "Not used.", dynamic=True),
        _key("retention.bytes", _LONG, "-1", "Keep at most this much.", dynamic=True),
        _key(
            "retention.ms",
            _LONG,
            str(7 * _DAY_MS),
            "Keep at most this long.",
            minimum=-1,
            dynamic=True,
        ),
        _key(
            "segment.bytes", _INT, "1073741824", "Size of a segment file.", minimum=14, dynamic=True
        ),
        _key("segment.index.bytes", _INT, "10485760", "Not used.", minimum=4, dynamic=True),
        _key("segment.jitter.ms", _LONG, "0", "Not used.", minimum=0, dynamic=True),
        _key(
            "segment.ms", _LONG, str(7 * _DAY_MS), "Age of a segment file.", minimum=1, dynamic=True
        ),
        _key("unclean.leader.election.enable", _BOOLEAN, "false", "Not used.", dynamic=True),
    )
}
"""What a topic may set (``TopicConfig``); its defaults come from the broker's settings below."""

BROKER_DEFAULT_OF: Mapping[str, str] = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.type": "compression.type",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
}
"""The broker setting that gives a topic setting its default."""

_COARSE_KEYS = (
    _key("log.retention.hours", _INT, "168", "Keep at most this many hours."),
    _key("log.retention.minutes", _INT, None, "Keep at most this many minutes."),
    _key("log.roll.hours", _INT, "168", "Age of a segment file in hours.", minimum=1),
)

BROKER_CONFIGS: Mapping[str, ConfigKey] = {
    **{key.name: key for key in _IGNORED_KEYS},
    **{key.name: key for key in _SERVER_KEYS},
    **{key.name: key for key in _COARSE_KEYS},
    **{
        broker_name: TOPIC_CONFIGS[topic_name]._replace(name=broker_name, dynamic=False)
        for topic_name, broker_name in BROKER_DEFAULT_OF.items()
    },
}


class BrokerConfig:
    """The settings of one broker: what was given, and Kafka's defaults for the rest."""

    def __init__(self, given: Mapping[str, str | int | float | bool] | None = None) -> None:
        """Raises KafkaError(INVALID_CONFIG) naming the first key or value that makes no sense."""
        self._given: dict[str, str] = {}
        unused = []
        for name, value in (given or {}).items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            key = BROKER_CONFIGS.get(name)
            if key is not None:
                key.check(text)
                self._given[name] = text.strip()
            elif is_unused(name):
                unused.append(name)
            else:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown broker configuration {name}")
        if unused:
            logger.warning("settings of Kafka that have no effect here: %s", ", ".join(unused))
        self._refuse_security()
        self._apply_coarse("log.retention.ms", ("log.retention.minutes", 60_000))
        self._apply_coarse("log.retention.ms", ("log.retention.hours", 3_600_000))
        self._apply_coarse("log.roll.ms", ("log.roll.hours", 3_600_000))
        if "broker.id" in self._given:
            self._given.setdefault("node.id", self._given["broker.id"])

    def _refuse_security(self) -> None:
        """Nobody who asks for protection may get a broker without it."""
        if self.text("authorizer.class.name"):
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                "authorizer.class.name is set, and this broker has no access control",
            )
        controllers = {name.upper() for name, _ in self._pairs("controller.listener.names")}
        protocols = {name.upper(): protocol for name, protocol in self._pairs(_PROTOCOL_MAP)}
        for setting in ("listeners", "advertised.listeners"):
            for name, address in self._pairs(setting):
                if not address.startswith("//") or name.upper() in controllers:
                    continue  # host:port without a name, or a listener that is never opened
                protocol = protocols.get(name.upper(), name).upper()
                if protocol != "PLAINTEXT":
                    raise KafkaError(
                        ErrorCode.INVALID_CONFIG,
                        f"{setting} has {name}:{address}, which needs {protocol}: this broker "
                        f"speaks PLAINTEXT only (see {_PROTOCOL_MAP})",
                    )

    def _pairs(self, name: str) -> Iterator[tuple[str, str]]:
        """The items of a list, each split at its first colon."""
        for item in self.string(name).split(","):
            if item.strip():
                first, _, rest = item.strip().partition(":")
                yield first.strip(), rest.strip()

    def _apply_coarse(self, fine: str, coarse: tuple[str, int]) -> None:
        """A finer unit wins over a coarser one, as in ``KafkaConfig``."""
        name, factor = coarse
        if name in self._given:
            value = int(self._given[name])
            self._given.setdefault(fine, str(-1 if value < 0 else value * factor))

    @property
    def given(self) -> Mapping[str, str]:
        return self._given

    def text(self, name: str) -> str | None:
        return self._given.get(name, BROKER_CONFIGS[name].default)

    def string(self, name: str) -> str:
        return self.text(name) or ""

    def int(self, name: str) -> int:
        return int(self.string(name))

    def bool(self, name: str) -> bool:
        return self.string(name).lower() == "true"

    def topic_default(self, topic_config: str) -> str | None:
        """The value a topic has that does not set ``topic_config`` itself."""
        broker_name = BROKER_DEFAULT_OF.get(topic_config)
        if broker_name is None:
            return TOPIC_CONFIGS[topic_config].default
        return self.text(broker_name)

    def topic_overrides(self) -> dict[str, str]:
        """Topic settings whose default this broker's own settings change."""
        return {
            topic_name: self._given[broker_name]
            for topic_name, broker_name in BROKER_DEFAULT_OF.items()
            if broker_name in self._given
        }


def check_topic_configs(configs: Mapping[str, str]) -> None:
    """Raise KafkaError(INVALID_CONFIG) for the first setting a topic cannot have."""
    for name, value in configs.items():
        key = TOPIC_CONFIGS.get(name)
        if key is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
        key.check(value)
