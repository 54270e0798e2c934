"""Administration: topics, configs, groups, offsets, records, transactions, the cluster."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from ..errors import ErrorCode, KafkaError
from ..protocol.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListGroupsRequest,
    ListTransactionsRequest,
    MetadataRequest,
    MetadataResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ..types import TopicPartition
from .admin_types import (
    ClusterDescription,
    ClusterNode,
    ConfigEntry,
    GroupDescription,
    GroupListing,
    MemberDescription,
    NewTopic,
    PartitionDescription,
    TopicDescription,
    TransactionDescription,
    TransactionListing,
)
from .cluster import METADATA_MAX_VERSION, Client, Coordinator, Target
from .errors import kafka_error
from .group import PROTOCOL_TYPE, GroupMetadata
from .offsets import OffsetAndMetadata, by_topic, commit_offsets, fetch_offsets
from .outbox import ProducerIdAndEpoch
from .subscription import decode_assignment
from .transaction import init_producer_id

TOPIC_RESOURCE = 2
SET = 0
DELETE = 1
NAMED_TOPICS_VERSION = 5
DEAD_GROUP_VERSION = 5

_NO_SUCH_TOPIC = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

Errors = dict[str, KafkaError | None]


class Admin:
    """Methods that return an error per name raise none of these; the others raise the first one.

    Every call takes at most ``timeout_ms``; what may be repeated is, while its error is retriable.
    """

    def __init__(self, client: Client, *, timeout_ms: int = 30_000) -> None:
        self._client = client
        self._timeout_ms = timeout_ms

    async def _call(
        self, target: Target, request: Any, errors: Any, *, max_version: int | None = None
    ) -> Any:
        def worth_waiting(response: Any) -> Iterable[int]:
            # A name that does not exist is an answer here, not a matter of waiting.
            return (code for code in errors(response) if code not in _NO_SUCH_TOPIC)

        return await self._client.call(
            target,
            request,
            errors=worth_waiting,
            timeout_ms=self._timeout_ms,
            max_version=max_version,
        )

    # topics

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> Errors:
        """Per topic None or its error (TOPIC_ALREADY_EXISTS ...).

        Returns when the metadata shows the new topics, so that they can be used at once.
        """
        request = CreateTopicsRequest(
            topics=[
                CreateTopicsRequest.CreatableTopic(
                    name=topic.name,
                    num_partitions=topic.partitions,
                    replication_factor=topic.replication_factor,
                    configs=[
                        CreateTopicsRequest.CreatableTopicConfig(name=name, value=value)
                        for name, value in topic.configs.items()
                    ],
                )
                for topic in topics
            ],
            timeout_ms=self._timeout_ms,
            validate_only=validate_only,
        )
        response: CreateTopicsResponse = await self._call(
            None, request, lambda r: (t.error_code for t in r.topics)
        )
        results = {t.name: _error(t.error_code, t.error_message) for t in response.topics}
        if not validate_only:
            for name, error in results.items():
                if error is None:
                    await self._client.topic(name, timeout_ms=self._timeout_ms)
        return results

    async def delete_topics(self, names: Iterable[str]) -> Errors:
        """Per topic None or its error. Returns when the metadata has lost them."""
        request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=self._timeout_ms)
        response: DeleteTopicsResponse = await self._client.request(
            None, request, max_version=NAMED_TOPICS_VERSION, timeout_ms=self._timeout_ms
        )
        results: Errors = {}
        for topic in response.responses:
            name = topic.name or ""
            results[name] = _error(topic.error_code, topic.error_message)
            self._client.forget_topic(name)
        gone = [name for name, error in results.items() if error is None]

        async def are_gone() -> bool:
            return not await self.describe_topics(gone)

        if gone:
            await self._wait_until(are_gone)
        return results

    async def create_partitions(self, counts: Mapping[str, int]) -> Errors:
        """New total count per topic. Returns when the metadata shows the new partitions."""
        request = CreatePartitionsRequest(
            topics=[
                CreatePartitionsRequest.CreatePartitionsTopic(
                    name=name, count=count, assignments=None
                )
                for name, count in counts.items()
            ],
            timeout_ms=self._timeout_ms,
        )
        response: CreatePartitionsResponse = await self._call(
            None, request, lambda r: (t.error_code for t in r.results)
        )
        results = {t.name: _error(t.error_code, t.error_message) for t in response.results}
        grown = {name: counts[name] for name, error in results.items() if error is None}

        async def are_there() -> bool:
            await self._client.refresh_metadata(list(grown))
            known = self._client.metadata
            return all((known.partition_count(name) or 0) >= n for name, n in grown.items())

        await self._wait_until(are_there)
        return results

    async def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """Only the topics that exist."""
        topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        if not topics:
            return {}
        response = await self._metadata(topics)
        return {
            topic.name or "": _describe(topic) for topic in response.topics if not topic.error_code
        }

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        """Names in order; with ``internal`` those of the coordinators too."""
        response = await self._metadata(None)
        topics = [
            t for t in response.topics if not t.error_code and (internal or not t.is_internal)
        ]
        return sorted(topic.name or "" for topic in topics)

    async def _metadata(
        self, topics: list[MetadataRequest.MetadataRequestTopic] | None
    ) -> MetadataResponse:
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        response: MetadataResponse = await self._call(
            None, request, lambda r: (r.error_code,), max_version=METADATA_MAX_VERSION
        )
        return response

    async def _wait_until(self, condition: Callable[[], Coroutine[Any, Any, bool]]) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_ms / 1000
        for failures in itertools.count(1):
            if await condition():
                return
            delay = self._client.backoff.delay(failures)
            if loop.time() + delay >= deadline:
                message = "the change was made, but the metadata does not show it yet"
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, message)
            await asyncio.sleep(delay)

    # configs

    async def describe_configs(self, topic: str) -> dict[str, ConfigEntry]:
        """Every config of a topic, defaults included."""
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=None
        )
        response: DescribeConfigsResponse = await self._call(
            None, DescribeConfigsRequest(resources=[resource]), _result_errors
        )
        result = response.results[0]
        _raise(result.error_code, result.error_message or topic)
        return {
            c.name: ConfigEntry(c.name, c.value, c.config_source, c.read_only, c.is_sensitive)
            for c in result.configs
        }

    async def alter_configs(self, topic: str, configs: Mapping[str, str | None]) -> None:
        """Incremental: None = back to the default; other keys stay."""
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=TOPIC_RESOURCE,
            resource_name=topic,
            configs=[
                IncrementalAlterConfigsRequest.AlterableConfig(
                    name=name, config_operation=DELETE if value is None else SET, value=value
                )
                for name, value in configs.items()
            ],
        )
        response: IncrementalAlterConfigsResponse = await self._call(
            None,
            IncrementalAlterConfigsRequest(resources=[resource]),
            lambda r: (t.error_code for t in r.responses),
        )
        _raise(response.responses[0].error_code, response.responses[0].error_message or topic)

    # records

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Delete below each offset (-1 = high watermark); returns the new log start offsets."""
        by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for tp in offsets:
            info = await self._client.leader(tp, timeout_ms=self._timeout_ms)
            by_leader[info.leader].append(tp)
        starts: dict[TopicPartition, int] = {}
        for node_id, partitions in by_leader.items():
            request = DeleteRecordsRequest(
                topics=[
                    DeleteRecordsRequest.DeleteRecordsTopic(
                        name=topic,
                        partitions=[
                            DeleteRecordsRequest.DeleteRecordsPartition(
                                partition_index=n, offset=offsets[TopicPartition(topic, n)]
                            )
                            for n in numbers
                        ],
                    )
                    for topic, numbers in by_topic(partitions).items()
                ],
                timeout_ms=self._timeout_ms,
            )
            response: DeleteRecordsResponse = await self._call(node_id, request, _nested_errors)
            for topic in response.topics:
                for partition in topic.partitions:
                    tp = TopicPartition(topic.name, partition.partition_index)
                    _raise(partition.error_code, f"deleting records of {tp}")
                    starts[tp] = partition.low_watermark
        return starts

    # groups

    async def list_groups(self) -> list[GroupListing]:
        """Of every node, by name."""
        found = []
        for node_id in await self._nodes():
            response = await self._call(node_id, ListGroupsRequest(), lambda r: (r.error_code,))
            _raise(response.error_code, f"groups of node {node_id}")
            found += [
                GroupListing(g.group_id, g.protocol_type, g.group_state) for g in response.groups
            ]
        return sorted(found)

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """A group that does not exist has the state "Dead"."""
        described = {}
        for group_id in group_ids:
            response: DescribeGroupsResponse = await self._call(
                Coordinator.group(group_id),
                DescribeGroupsRequest(groups=[group_id]),
                lambda r: (g.error_code for g in r.groups),
                max_version=DEAD_GROUP_VERSION,
            )
            group = response.groups[0]
            _raise(group.error_code, f"group {group_id}")
            described[group_id] = _describe_group(group)
        return described

    async def delete_groups(self, group_ids: Iterable[str]) -> Errors:
        """Per group None or its error (NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND)."""
        results: Errors = {}
        for group_id in group_ids:
            response: DeleteGroupsResponse = await self._call(
                Coordinator.group(group_id),
                DeleteGroupsRequest(groups_names=[group_id]),
                _result_errors,
            )
            results[group_id] = _error(response.results[0].error_code, None)
        return results

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Raises KafkaError(UNKNOWN_MEMBER_ID) while the group has members."""
        await commit_offsets(
            self._client, GroupMetadata(group_id), offsets, timeout_ms=self._timeout_ms
        )

    async def list_group_offsets(
        self, group_id: str, *, require_stable: bool = False
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Everything the group has committed."""
        found = await fetch_offsets(
            self._client,
            group_id,
            None,
            require_stable=require_stable,
            timeout_ms=self._timeout_ms,
        )
        return {tp: offset for tp, offset in found.items() if offset is not None}

    # transactions

    async def list_transactions(self) -> list[TransactionListing]:
        """Of every node, by transactional id."""
        found = []
        for node_id in await self._nodes():
            response = await self._call(
                node_id, ListTransactionsRequest(), lambda r: (r.error_code,)
            )
            _raise(response.error_code, f"transactions of node {node_id}")
            found += [
                TransactionListing(t.transactional_id, t.producer_id, t.transaction_state)
                for t in response.transaction_states
            ]
        return sorted(found)

    async def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, TransactionDescription | None]:
        """None = there is no such transactional id."""
        described: dict[str, TransactionDescription | None] = {}
        for transactional_id in transactional_ids:
            response: DescribeTransactionsResponse = await self._call(
                Coordinator.transaction(transactional_id),
                DescribeTransactionsRequest(transactional_ids=[transactional_id]),
                lambda r: (t.error_code for t in r.transaction_states),
            )
            state = response.transaction_states[0]
            if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                described[transactional_id] = None
                continue
            _raise(state.error_code, f"transactional id {transactional_id}")
            described[transactional_id] = _describe_transaction(state)
        return described

    async def abort_transaction(
        self, tp: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int = -1
    ) -> None:
        """Write an abort marker to one partition: for a transaction its coordinator lost."""
        info = await self._client.leader(tp, timeout_ms=self._timeout_ms)
        marker = WriteTxnMarkersRequest.WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_result=False,
            topics=[
                WriteTxnMarkersRequest.WritableTxnMarkerTopic(
                    name=tp.topic, partition_indexes=[tp.partition]
                )
            ],
            coordinator_epoch=coordinator_epoch,
        )
        response: WriteTxnMarkersResponse = await self._client.request(
            info.leader, WriteTxnMarkersRequest(markers=[marker]), timeout_ms=self._timeout_ms
        )
        for result in response.markers:
            for topic in result.topics:
                for partition in topic.partitions:
                    _raise(partition.error_code, f"aborting producer {producer_id} on {tp}")

    async def fence_producers(self, transactional_ids: Iterable[str]) -> None:
        """InitProducerId for each: aborts what is open, waits for that, and fences its producer."""
        await asyncio.gather(
            *(
                init_producer_id(
                    self._client,
                    transactional_id,
                    self._timeout_ms,
                    ProducerIdAndEpoch(),
                    timeout_ms=self._timeout_ms,
                )
                for transactional_id in transactional_ids
            )
        )

    # the cluster

    async def describe_cluster(self) -> ClusterDescription:
        response: DescribeClusterResponse = await self._call(
            None, DescribeClusterRequest(), lambda r: (r.error_code,)
        )
        _raise(response.error_code, response.error_message or "the cluster")
        nodes = tuple(ClusterNode(b.broker_id, b.host, b.port) for b in response.brokers)
        return ClusterDescription(response.cluster_id, response.controller_id, nodes)

    async def _nodes(self) -> list[int]:
        await self._client.refresh_metadata()
        return sorted(self._client.metadata.nodes)


def _error(code: int, message: str | None) -> KafkaError | None:
    return kafka_error(code, message) if code else None


def _raise(code: int, what: str) -> None:
    if code:
        raise kafka_error(code, what)


def _result_errors(response: Any) -> Iterable[int]:
    return (result.error_code for result in response.results)


def _nested_errors(response: DeleteRecordsResponse) -> Iterable[int]:
    return (p.error_code for topic in response.topics for p in topic.partitions)


def _describe(topic: MetadataResponse.MetadataResponseTopic) -> TopicDescription:
    partitions = sorted(
        PartitionDescription(
            p.partition_index,
            p.leader_id,
            p.leader_epoch,
            tuple(p.replica_nodes),
            tuple(p.isr_nodes),
        )
        for p in topic.partitions
    )
    return TopicDescription(topic.name or "", topic.topic_id, topic.is_internal, tuple(partitions))


def _describe_group(group: DescribeGroupsResponse.DescribedGroup) -> GroupDescription:
    is_consumer = group.protocol_type == PROTOCOL_TYPE
    members = tuple(
        MemberDescription(
            m.member_id,
            m.group_instance_id,
            m.client_id,
            m.client_host,
            tuple(decode_assignment(bytes(m.member_assignment))[0]) if is_consumer else (),
            bytes(m.member_metadata),
        )
        for m in group.members
    )
    return GroupDescription(
        group.group_id, group.group_state, group.protocol_type, group.protocol_data, members
    )


def _describe_transaction(
    state: DescribeTransactionsResponse.TransactionState,
) -> TransactionDescription:
    return TransactionDescription(
        state.transactional_id,
        state.transaction_state,
        state.producer_id,
        state.producer_epoch,
        state.transaction_timeout_ms,
        state.transaction_start_time_ms,
        tuple(TopicPartition(topic.topic, n) for topic in state.topics for n in topic.partitions),
    )
