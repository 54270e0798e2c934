"""Which APIs exist: key, message classes and the versions the codec can read and write.

What a broker *advertises* is narrower and is the handlers' table.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from . import messages as m
from .fields import ENDLESS, NO_VERSIONS, schema_of


class ApiKey(enum.IntEnum):
    """Keys of the APIs this package has messages for (Apache Kafka's ``ApiKeys``)."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_QUORUM = 55
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75


class Api(NamedTuple):
    """One API; versions are inclusive, ``first_flexible`` is 32767 when no version is flexible."""

    key: ApiKey
    request: type[Any]
    response: type[Any]
    min_version: int
    max_version: int
    first_flexible: int

    def supports(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version


def _api(key: ApiKey, request: type[Any], response: type[Any]) -> Api:
    schema = schema_of(request)
    flexible = ENDLESS if schema.flexible == NO_VERSIONS else schema.flexible.first
    return Api(key, request, response, *schema.versions, flexible)


APIS: Mapping[int, Api] = MappingProxyType(
    {
        api.key: api
        for api in (
            _api(ApiKey.PRODUCE, m.ProduceRequest, m.ProduceResponse),
            _api(ApiKey.FETCH, m.FetchRequest, m.FetchResponse),
            _api(ApiKey.LIST_OFFSETS, m.ListOffsetsRequest, m.ListOffsetsResponse),
            _api(ApiKey.METADATA, m.MetadataRequest, m.MetadataResponse),
            _api(ApiKey.OFFSET_COMMIT, m.OffsetCommitRequest, m.OffsetCommitResponse),
            _api(ApiKey.OFFSET_FETCH, m.OffsetFetchRequest, m.OffsetFetchResponse),
            _api(ApiKey.FIND_COORDINATOR, m.FindCoordinatorRequest, m.FindCoordinatorResponse),
            _api(ApiKey.JOIN_GROUP, m.JoinGroupRequest, m.JoinGroupResponse),
            _api(ApiKey.HEARTBEAT, m.HeartbeatRequest, m.HeartbeatResponse),
            _api(ApiKey.LEAVE_GROUP, m.LeaveGroupRequest, m.LeaveGroupResponse),
            _api(ApiKey.SYNC_GROUP, m.SyncGroupRequest, m.SyncGroupResponse),
            _api(ApiKey.DESCRIBE_GROUPS, m.DescribeGroupsRequest, m.DescribeGroupsResponse),
            _api(ApiKey.LIST_GROUPS, m.ListGroupsRequest, m.ListGroupsResponse),
            _api(ApiKey.SASL_HANDSHAKE, m.SaslHandshakeRequest, m.SaslHandshakeResponse),
            _api(ApiKey.API_VERSIONS, m.ApiVersionsRequest, m.ApiVersionsResponse),
            _api(ApiKey.CREATE_TOPICS, m.CreateTopicsRequest, m.CreateTopicsResponse),
            _api(ApiKey.DELETE_TOPICS, m.DeleteTopicsRequest, m.DeleteTopicsResponse),
            _api(ApiKey.DELETE_RECORDS, m.DeleteRecordsRequest, m.DeleteRecordsResponse),
            _api(ApiKey.INIT_PRODUCER_ID, m.InitProducerIdRequest, m.InitProducerIdResponse),
            _api(
                ApiKey.OFFSET_FOR_LEADER_EPOCH,
                m.OffsetForLeaderEpochRequest,
                m.OffsetForLeaderEpochResponse,
            ),
            _api(
                ApiKey.ADD_PARTITIONS_TO_TXN,
                m.AddPartitionsToTxnRequest,
                m.AddPartitionsToTxnResponse,
            ),
            _api(ApiKey.ADD_OFFSETS_TO_TXN, m.AddOffsetsToTxnRequest, m.AddOffsetsToTxnResponse),
            _api(ApiKey.END_TXN, m.EndTxnRequest, m.EndTxnResponse),
            _api(ApiKey.WRITE_TXN_MARKERS, m.WriteTxnMarkersRequest, m.WriteTxnMarkersResponse),
            _api(ApiKey.TXN_OFFSET_COMMIT, m.TxnOffsetCommitRequest, m.TxnOffsetCommitResponse),
            _api(ApiKey.DESCRIBE_ACLS, m.DescribeAclsRequest, m.DescribeAclsResponse),
            _api(ApiKey.CREATE_ACLS, m.CreateAclsRequest, m.CreateAclsResponse),
            _api(ApiKey.DELETE_ACLS, m.DeleteAclsRequest, m.DeleteAclsResponse),
            _api(ApiKey.DESCRIBE_CONFIGS, m.DescribeConfigsRequest, m.DescribeConfigsResponse),
            _api(ApiKey.ALTER_CONFIGS, m.AlterConfigsRequest, m.AlterConfigsResponse),
            _api(
                ApiKey.ALTER_REPLICA_LOG_DIRS,
                m.AlterReplicaLogDirsRequest,
                m.AlterReplicaLogDirsResponse,
            ),
            _api(ApiKey.DESCRIBE_LOG_DIRS, m.DescribeLogDirsRequest, m.DescribeLogDirsResponse),
            _api(ApiKey.SASL_AUTHENTICATE, m.SaslAuthenticateRequest, m.SaslAuthenticateResponse),
            _api(ApiKey.CREATE_PARTITIONS, m.CreatePartitionsRequest, m.CreatePartitionsResponse),
            _api(ApiKey.DELETE_GROUPS, m.DeleteGroupsRequest, m.DeleteGroupsResponse),
            _api(ApiKey.ELECT_LEADERS, m.ElectLeadersRequest, m.ElectLeadersResponse),
            _api(
                ApiKey.INCREMENTAL_ALTER_CONFIGS,
                m.IncrementalAlterConfigsRequest,
                m.IncrementalAlterConfigsResponse,
            ),
            _api(
                ApiKey.ALTER_PARTITION_REASSIGNMENTS,
                m.AlterPartitionReassignmentsRequest,
                m.AlterPartitionReassignmentsResponse,
            ),
            _api(
                ApiKey.LIST_PARTITION_REASSIGNMENTS,
                m.ListPartitionReassignmentsRequest,
                m.ListPartitionReassignmentsResponse,
            ),
            _api(ApiKey.OFFSET_DELETE, m.OffsetDeleteRequest, m.OffsetDeleteResponse),
            _api(ApiKey.DESCRIBE_QUORUM, m.DescribeQuorumRequest, m.DescribeQuorumResponse),
            _api(ApiKey.DESCRIBE_CLUSTER, m.DescribeClusterRequest, m.DescribeClusterResponse),
            _api(
                ApiKey.DESCRIBE_PRODUCERS, m.DescribeProducersRequest, m.DescribeProducersResponse
            ),
            _api(
                ApiKey.DESCRIBE_TRANSACTIONS,
                m.DescribeTransactionsRequest,
                m.DescribeTransactionsResponse,
            ),
            _api(ApiKey.LIST_TRANSACTIONS, m.ListTransactionsRequest, m.ListTransactionsResponse),
            _api(
                ApiKey.LIST_CONFIG_RESOURCES,
                m.ListConfigResourcesRequest,
                m.ListConfigResourcesResponse,
            ),
            _api(
                ApiKey.DESCRIBE_TOPIC_PARTITIONS,
                m.DescribeTopicPartitionsRequest,
                m.DescribeTopicPartitionsResponse,
            ),
        )
    }
)
"""Every API by its key."""
