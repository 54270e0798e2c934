"""DescribeConfigs (32), versions 1-4.

Behaviour
- topics (2) and this broker (4; an empty name is the cluster-wide default, where nothing is set)
- ``configuration_keys`` null or empty (as Kafka reads it) means all
- synonyms and documentation when asked for; 3: the type of each setting

Left out: broker loggers (8), client metrics (16), groups (32): INVALID_REQUEST.
"""

from __future__ import annotations

from ..errors import ErrorCode, KafkaError
from ..protocol.messages import DescribeConfigsRequest, DescribeConfigsResponse
from ..server.listener import format_address
from .config_entries import ConfigEntry, broker_entries, topic_entries
from .context import RequestContext

MIN_VERSION, MAX_VERSION = 1, 4
TOPIC, BROKER = 2, 4

_Asked = DescribeConfigsRequest.DescribeConfigsResource
_Outcome = DescribeConfigsResponse.DescribeConfigsResult


async def handle(
    context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[_describe(context, request, asked) for asked in request.resources]
    )


def _describe(context: RequestContext, request: DescribeConfigsRequest, asked: _Asked) -> _Outcome:
    outcome = _Outcome(
        resource_type=asked.resource_type, resource_name=asked.resource_name, error_message=None
    )
    try:
        entries = _entries(context, asked)
    except KafkaError as error:
        outcome.error_code, outcome.error_message = error.code, error.message
        return outcome
    outcome.configs = [
        _encode(entry, request)
        for entry in entries
        if not asked.configuration_keys or entry.key.name in asked.configuration_keys
    ]
    return outcome


def _entries(context: RequestContext, asked: _Asked) -> list[ConfigEntry]:
    services = context.services
    if asked.resource_type == TOPIC:
        topic = services.metadata.topic(asked.resource_name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This topic does not exist.")
        return topic_entries(services.config, topic.configs)
    if asked.resource_type == BROKER:
        if asked.resource_name == "":
            return []
        if asked.resource_name != str(services.metadata.node_id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {services.metadata.node_id}.",
            )
        return broker_entries(services.config, _facts(context))
    raise KafkaError(
        ErrorCode.INVALID_REQUEST, f"Resource type {asked.resource_type} has no settings here."
    )


def _facts(context: RequestContext) -> dict[str, str]:
    """What the start of this broker decided; Kafka has these in its properties file."""
    services = context.services
    return {
        "node.id": str(services.metadata.node_id),
        "advertised.listeners": f"PLAINTEXT://{format_address(context.address)}",
        "log.dirs": services.data_dir,
    }


def _encode(
    entry: ConfigEntry, request: DescribeConfigsRequest
) -> DescribeConfigsResponse.DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else []
    return DescribeConfigsResponse.DescribeConfigsResourceResult(
        name=entry.key.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[
            DescribeConfigsResponse.DescribeConfigsSynonym(
                name=synonym.name, value=synonym.value, source=synonym.source
            )
            for synonym in synonyms
        ],
        config_type=entry.key.type,
        documentation=entry.key.documentation if request.include_documentation else None,
    )
