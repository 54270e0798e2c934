"""Topics an app needs, created when they are missing and checked when they exist."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from onceward.broker.client import Admin, ErrorCode, NewTopic

from ..config import Settings
from ..errors import ConfigurationError
from ..topic import Topic
from ..topology import TopicNeed, Topology

logger = logging.getLogger(__name__)


async def partition_counts(admin: Admin, names: Iterable[str]) -> dict[str, int]:
    """Partitions of the topics that exist."""
    wanted = sorted(set(names))
    if not wanted:
        return {}
    found = await admin.describe_topics(wanted)
    return {name: len(topic.partitions) for name, topic in found.items()}


def written_topics(
    declared: Iterable[Topic], topology: Topology, dead_letters: str | None
) -> list[TopicNeed]:
    """Declared topics no agent reads, and the topic for dead letters."""
    sources = set(topology.source_topics)
    needs = {
        name: TopicNeed(name, topic.partitions, topic.replicas, topic.configs)
        for topic in declared
        for name in topic.names
        if name not in sources
    }
    if dead_letters is not None:
        needs.setdefault(dead_letters, TopicNeed(dead_letters, None, None, {}))
    return list(needs.values())


async def declare_topics(
    admin: Admin, topology: Topology, others: Iterable[TopicNeed], settings: Settings
) -> dict[str, int]:
    """Partition counts of every topic, those missing created first.

    ``others`` are topics that are only written to. Raises ConfigurationError (PartitionsMismatch)
    and KafkaError.
    """
    written = list(others)
    changelogs = [t.changelog_name for sub in topology.sub_topologies for t in sub.tables.values()]
    names = [*topology.source_topics, *(need.name for need in written), *changelogs]
    counts = await partition_counts(admin, names)
    missing = [need for need in written if need.name not in counts]
    counts |= await create(admin, topology.source_needs(counts), settings)
    counts |= await create(admin, [n for n in missing if n.name not in counts], settings)
    counts |= await create(admin, topology.changelog_needs(counts), settings)
    return counts


async def create(admin: Admin, needs: Iterable[TopicNeed], settings: Settings) -> dict[str, int]:
    """Create topics; one that another worker created meanwhile is fine. Returns partition
    counts."""
    wanted = {need.name: need for need in needs}
    if not wanted:
        return {}
    if not settings.topic_allow_declare:
        raise ConfigurationError(
            f"topics {', '.join(sorted(wanted))} do not exist and topic_allow_declare is off: "
            "create them, or allow the app to"
        )
    new = [
        NewTopic(
            need.name,
            need.partitions or settings.topic_partitions,
            need.replicas or settings.topic_replication_factor,
            dict(need.configs),
        )
        for need in wanted.values()
    ]
    logger.info("creating topics %s", ", ".join(sorted(wanted)))
    for name, error in (await admin.create_topics(new)).items():
        if error is not None and error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise ConfigurationError(f"topic {name} cannot be created: {error}") from error
    counts = await partition_counts(admin, wanted)
    absent = sorted(set(wanted) - set(counts))
    if absent:
        raise ConfigurationError(f"topics {', '.join(absent)} were created but do not show up")
    return counts
