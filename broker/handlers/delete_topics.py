"""DeleteTopics (20), versions 1-6.

Behaviour
- durable before it is answered; committed offsets of the topic are dropped from every group; who
  waits for a partition of it gets UNKNOWN_TOPIC_OR_PARTITION
- errors per topic: 3 unknown, 73 ``delete.topic.enable`` is off, 17 internal, 42 named twice
  (and not deleted)
- 6: by name or by id (100 unknown id)
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import NamedTuple

from ..errors import ErrorCode, KafkaError
from ..metadata import Topic
from ..protocol.messages import DeleteTopicsRequest, DeleteTopicsResponse
from ..types import INTERNAL_TOPICS, ZERO_UUID
from .context import RequestContext

logger = logging.getLogger(__name__)

MIN_VERSION, MAX_VERSION = 1, 6

_Outcome = DeleteTopicsResponse.DeletableTopicResult


class _Asked(NamedTuple):
    name: str | None
    topic_id: bytes


async def handle(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    asked = [_Asked(name, ZERO_UUID) for name in request.topic_names]
    if context.version >= 6:
        asked = [_Asked(state.name, state.topic_id) for state in request.topics]
    doomed: dict[str, Topic] = {}
    outcomes = []
    for each, mentions in Counter(asked).items():
        try:
            topic = _resolve(context, each)
            if mentions > 1 or topic.name in doomed:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "The topic is named twice.")
        except KafkaError as error:
            outcomes.append(
                _Outcome(
                    name=each.name,
                    topic_id=each.topic_id,
                    error_code=error.code,
                    error_message=error.message,
                )
            )
            continue
        doomed[topic.name] = topic
        outcomes.append(_Outcome(name=topic.name, topic_id=topic.id))
    context.services.topics.delete(list(doomed))
    if doomed:
        await _forget_offsets(context, list(doomed))
    return DeleteTopicsResponse(responses=outcomes)


async def _forget_offsets(context: RequestContext, topics: list[str]) -> None:
    try:
        await context.services.groups.topics_deleted(topics)
    except KafkaError as error:
        # The topics are gone; what stays are offsets, until they expire.
        logger.warning("offsets of deleted topics %s are kept: %s", topics, error)


def _resolve(context: RequestContext, asked: _Asked) -> Topic:
    services = context.services
    if asked.name is None:
        topic = services.metadata.topic_by_id(asked.topic_id)
        missing = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        topic = services.metadata.topic(asked.name)
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic is None:
        raise KafkaError(missing, "This topic does not exist.")
    if topic.name in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "Internal topics stay.")
    if not services.config.bool("delete.topic.enable"):
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
    return topic
