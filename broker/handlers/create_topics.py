"""CreateTopics (19), versions 2-7.

Behaviour
- durable before it is answered; the requested topics are created in one write
- errors per topic: 17 name (or a name differing only in '.' and '_'), 36 exists, 37 partitions,
  38 replication factor (one node: only 1), 39 assignment, 40 config, 42 named twice
- assignments exclude the two counts; each partition must be on this node
- 4: -1 partitions or replicas means the broker's default; 5: the settings in the answer; 7: topic
id - validate_only creates nothing

Left out: create-topic policies, quotas.
"""

from __future__ import annotations

from collections import Counter

from ..errors import ErrorCode, KafkaError
from ..metadata import Topic
from ..protocol.messages import CreateTopicsRequest, CreateTopicsResponse
from ..types import INTERNAL_TOPICS, ZERO_UUID
from .config_entries import topic_entries
from .context import RequestContext

MIN_VERSION, MAX_VERSION = 2, 7

_Asked = CreateTopicsRequest.CreatableTopic
_Outcome = CreateTopicsResponse.CreatableTopicResult


async def handle(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    mentions = Counter(asked.name for asked in request.topics)
    created: list[Topic] = []
    outcomes = []
    for name in mentions:
        asked = next(each for each in request.topics if each.name == name)
        try:
            if mentions[name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "The topic is named twice.")
            topic = _prepare(context, asked)
        except KafkaError as error:
            outcomes.append(_refused(name, error))
            continue
        created.append(topic)
        outcomes.append(_accepted(context, topic, request.validate_only))
    if not request.validate_only:
        context.services.topics.create(created)
    return CreateTopicsResponse(topics=outcomes)


def _prepare(context: RequestContext, asked: _Asked) -> Topic:
    if asked.name in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{asked.name}' already exists.")
    partitions = _partition_count(context, asked)
    configs: dict[str, str] = {}
    for config in asked.configs:
        if config.value is None:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"Null value not supported for {config.name}"
            )
        configs[config.name] = config.value
    return context.services.topics.prepare(asked.name, partitions, configs)


def _partition_count(context: RequestContext, asked: _Asked) -> int:
    """How many partitions are asked for; -1 for the default."""
    if asked.assignments:
        if asked.num_partitions != -1 or asked.replication_factor != -1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "Both numPartitions or replicationFactor and replicasAssignments were set.",
            )
        _check_assignments(context, asked)
        return len(asked.assignments)
    defaults_allowed = context.version >= 4
    if asked.num_partitions < 1 and not (asked.num_partitions == -1 and defaults_allowed):
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0."
        )
    factor = asked.replication_factor
    if factor != 1 and not (factor == -1 and defaults_allowed):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor {factor} is not possible: this cluster has 1 broker.",
        )
    return asked.num_partitions


def _check_assignments(context: RequestContext, asked: _Asked) -> None:
    indexes = sorted(assignment.partition_index for assignment in asked.assignments)
    node = [context.services.metadata.node_id]
    if indexes != list(range(len(indexes))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Partitions must be numbered from 0 on."
        )
    if any(assignment.broker_ids != node for assignment in asked.assignments):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The only broker of this cluster is {node[0]}."
        )


def _refused(name: str, error: KafkaError) -> _Outcome:
    return _Outcome(name=name, error_code=error.code, error_message=error.message, configs=[])


def _accepted(context: RequestContext, topic: Topic, validate_only: bool) -> _Outcome:
    return _Outcome(
        name=topic.name,
        topic_id=ZERO_UUID if validate_only else topic.id,
        error_message=None,
        num_partitions=topic.partitions,
        replication_factor=1,
        configs=[
            CreateTopicsResponse.CreatableTopicConfigs(
                name=entry.key.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.is_sensitive,
            )
            for entry in topic_entries(context.services.config, topic.configs)
        ],
    )
