"""AlterConfigs (33), versions 0-2: the older call that replaces every setting of a resource.

Behaviour
- what the request does not name goes back to its default; otherwise as IncrementalAlterConfigs
"""

from __future__ import annotations

from collections import Counter

from ..errors import ErrorCode, KafkaError
from ..protocol.messages import AlterConfigsRequest, AlterConfigsResponse
from .context import RequestContext
from .incremental_alter_configs import topic_configs

MIN_VERSION, MAX_VERSION = 0, 2

_Outcome = AlterConfigsResponse.AlterConfigsResourceResponse


async def handle(context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
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
            topic_configs(context, asked.resource_type, asked.resource_name)
            configs = _given(asked.configs)
            context.services.topics.check_configs(configs)
        except KafkaError as error:
            outcome.error_code, outcome.error_message = error.code, error.message
            continue
        if not request.validate_only:
            context.services.topics.set_configs(asked.resource_name, configs)
    return AlterConfigsResponse(responses=outcomes)


def _given(configs: list[AlterConfigsRequest.AlterableConfig]) -> dict[str, str]:
    given: dict[str, str] = {}
    for config in configs:
        if config.value is None:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"Null value not supported for {config.name}"
            )
        given[config.name] = config.value
    return given
