"""Settings of topics and of the broker as DescribeConfigs and CreateTopics report them."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import NamedTuple

from ..config import (
    BROKER_CONFIGS,
    BROKER_DEFAULT_OF,
    TOPIC_CONFIGS,
    BrokerConfig,
    ConfigKey,
    ConfigType,
)


class ConfigSource(enum.IntEnum):
    """Where a value comes from (``DescribeConfigsResponse.ConfigSource``)."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


class Synonym(NamedTuple):
    """One place that names the value, strongest first."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    key: ConfigKey
    value: str | None
    source: ConfigSource
    read_only: bool
    synonyms: list[Synonym]

    @property
    def is_sensitive(self) -> bool:
        return self.key.type is ConfigType.PASSWORD


def topic_entries(config: BrokerConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Every setting of a topic that itself sets ``overrides``."""
    return [_topic_entry(config, key, overrides) for key in TOPIC_CONFIGS.values()]


def _topic_entry(config: BrokerConfig, key: ConfigKey, overrides: Mapping[str, str]) -> ConfigEntry:
    synonyms = []
    if key.name in overrides:
        synonyms.append(Synonym(key.name, overrides[key.name], ConfigSource.TOPIC))
    broker_name = BROKER_DEFAULT_OF.get(key.name)
    if broker_name is not None and broker_name in config.given:
        value = config.given[broker_name]
        synonyms.append(Synonym(broker_name, value, ConfigSource.STATIC_BROKER))
    synonyms.append(Synonym(broker_name or key.name, key.default, ConfigSource.DEFAULT))
    first = synonyms[0]
    return ConfigEntry(key, first.value, first.source, False, synonyms)


def broker_entries(config: BrokerConfig, facts: Mapping[str, str]) -> list[ConfigEntry]:
    """Every setting of the broker. All are read-only: none changes while it runs.

    ``facts`` are values that it has although no setting gave them, such as its address.
    """
    known = {**facts, **config.given}
    entries = []
    for key in BROKER_CONFIGS.values():
        synonyms = [Synonym(key.name, key.default, ConfigSource.DEFAULT)]
        if key.name in known:
            synonyms.insert(0, Synonym(key.name, known[key.name], ConfigSource.STATIC_BROKER))
        entries.append(ConfigEntry(key, synonyms[0].value, synonyms[0].source, True, synonyms))
    return entries
