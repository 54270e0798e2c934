"""IncrementalAlterConfigs (44), versions 0-1.

Behaviour
- topics: set, delete (back to the default), and for lists append and subtract
- all changes of a resource or none; durable before it is answered
- this broker (4; an empty name is the cluster-wide default): nothing can be set while it runs, so
  to delete a setting, whatever its name, is done already (``kafka-reassign-partitions --verify``
  does that to throttles); anything else is 42
- errors per resource: 3 unknown topic, 40 setting or value, 42 named twice

Left out: loggers, client metrics, groups.
"""

from __future__ import annotations

from collections import Counter

from ..config import TOPIC_CONFIGS, ConfigType
from ..errors import ErrorCode, KafkaError
from ..protocol.messages import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from .context import RequestContext
from .describe_configs import BROKER, TOPIC

MIN_VERSION, MAX_VERSION = 0, 1
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3

_Asked = IncrementalAlterConfigsRequest.AlterConfigsResource
_Change = IncrementalAlterConfigsRequest.AlterableConfig
_Outcome = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse


async def handle(
    context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    mentions = Counter((asked.resource_type, asked.resource_name) for asked in request.resources)
    outcomes = []
    for asked in request.resources:
        outcome = _Outcome(
            resource_type=asked.resource_type, resource_name=asked.resource_name, error_message=None
        )
        outcomes.append(outcome)
        try:
            if mentions[asked.resource_type, asked.resource_name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "The resource is named twice.")
            if _resets_broker(context, asked):
                continue
            configs = _changed(context, asked)
            context.services.topics.check_configs(configs)
        except KafkaError as error:
            outcome.error_code, outcome.error_message = error.code, error.message
            continue
        if not request.validate_only:
            context.services.topics.set_configs(asked.resource_name, configs)
    return IncrementalAlterConfigsResponse(responses=outcomes)


def topic_configs(context: RequestContext, resource_type: int, name: str) -> dict[str, str]:
    """What a topic sets itself. Raises KafkaError when the resource is not a topic we have."""
    if resource_type != TOPIC:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "Only settings of topics can change while the broker runs."
        )
    topic = context.services.metadata.topic(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This topic does not exist.")
    return dict(topic.configs)


def _resets_broker(context: RequestContext, asked: _Asked) -> bool:
    """Whether the change only takes back what was set on this broker since its start: nothing."""
    return (
        asked.resource_type == BROKER
        and asked.resource_name in ("", str(context.services.metadata.node_id))
        and all(change.config_operation == DELETE for change in asked.configs)
    )


def _changed(context: RequestContext, asked: _Asked) -> dict[str, str]:
    configs = topic_configs(context, asked.resource_type, asked.resource_name)
    if len({change.name for change in asked.configs}) != len(asked.configs):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A setting is named twice.")
    for change in asked.configs:
        if change.name not in TOPIC_CONFIGS:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {change.name}")
        if change.config_operation == DELETE:
            configs.pop(change.name, None)
        else:
            configs[change.name] = _new_value(context, change, configs.get(change.name))
    return configs


def _new_value(context: RequestContext, change: _Change, current: str | None) -> str:
    if change.value is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for {change.name}")
    if change.config_operation == SET:
        return change.value
    if change.config_operation not in (APPEND, SUBTRACT):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Unknown operation on a setting.")
    if TOPIC_CONFIGS[change.name].type is not ConfigType.LIST:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{change.name} is not a list.")
    if current is None:
        current = context.services.config.topic_default(change.name) or ""
    parts = [part.strip() for part in current.split(",") if part.strip()]
    given = [part.strip() for part in change.value.split(",") if part.strip()]
    if change.config_operation == APPEND:
        return ",".join(parts + [part for part in given if part not in parts])
    return ",".join(part for part in parts if part not in given)
