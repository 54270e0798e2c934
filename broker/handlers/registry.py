"""Which APIs this broker serves, in which versions: what ApiVersions announces, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from ..protocol.api import ApiKey
from . import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)
from .context import Entry, Handle


class _Api(Protocol):
    """What the module of an API defines."""

    @property
    def MIN_VERSION(self) -> int: ...

    @property
    def MAX_VERSION(self) -> int: ...

    @property
    def handle(self) -> Handle: ...


def _reads(key: ApiKey, api: _Api) -> Entry:
    return Entry(key, api.MIN_VERSION, api.MAX_VERSION, api.handle)


def _writes(key: ApiKey, api: _Api, advertised_min: int | None = None) -> Entry:
    """A bug in it stops the broker: the log or a coordinator may be inconsistent."""
    return Entry(key, api.MIN_VERSION, api.MAX_VERSION, api.handle, True, advertised_min)


ENTRIES: Mapping[int, Entry] = MappingProxyType(
    {
        entry.key: entry
        for entry in (
            _writes(ApiKey.PRODUCE, produce, produce.ADVERTISED_MIN_VERSION),
            _reads(ApiKey.FETCH, fetch),
            _reads(ApiKey.LIST_OFFSETS, list_offsets),
            _writes(ApiKey.METADATA, metadata),
            _writes(ApiKey.OFFSET_COMMIT, offset_commit),
            _reads(ApiKey.OFFSET_FETCH, offset_fetch),
            _reads(ApiKey.FIND_COORDINATOR, find_coordinator),
            _writes(ApiKey.JOIN_GROUP, join_group),
            _writes(ApiKey.HEARTBEAT, heartbeat),
            _writes(ApiKey.LEAVE_GROUP, leave_group),
            _writes(ApiKey.SYNC_GROUP, sync_group),
            _reads(ApiKey.DESCRIBE_GROUPS, describe_groups),
            _reads(ApiKey.LIST_GROUPS, list_groups),
            _reads(ApiKey.API_VERSIONS, api_versions),
            _writes(ApiKey.CREATE_TOPICS, create_topics),
            _writes(ApiKey.DELETE_TOPICS, delete_topics),
            _writes(ApiKey.DELETE_RECORDS, delete_records),
            _writes(ApiKey.INIT_PRODUCER_ID, init_producer_id),
            _reads(ApiKey.OFFSET_FOR_LEADER_EPOCH, offset_for_leader_epoch),
            _writes(ApiKey.ADD_PARTITIONS_TO_TXN, add_partitions_to_txn),
            _writes(ApiKey.ADD_OFFSETS_TO_TXN, add_offsets_to_txn),
            _writes(ApiKey.END_TXN, end_txn),
            _writes(ApiKey.WRITE_TXN_MARKERS, write_txn_markers),
            _writes(ApiKey.TXN_OFFSET_COMMIT, txn_offset_commit),
            _reads(ApiKey.DESCRIBE_ACLS, describe_acls),
            _reads(ApiKey.CREATE_ACLS, create_acls),
            _reads(ApiKey.DELETE_ACLS, delete_acls),
            _reads(ApiKey.DESCRIBE_CONFIGS, describe_configs),
            _writes(ApiKey.ALTER_CONFIGS, alter_configs),
            _reads(ApiKey.ALTER_REPLICA_LOG_DIRS, alter_replica_log_dirs),
            _reads(ApiKey.DESCRIBE_LOG_DIRS, describe_log_dirs),
            _writes(ApiKey.CREATE_PARTITIONS, create_partitions),
            _writes(ApiKey.DELETE_GROUPS, delete_groups),
            _reads(ApiKey.ELECT_LEADERS, elect_leaders),
            _writes(ApiKey.INCREMENTAL_ALTER_CONFIGS, incremental_alter_configs),
            _reads(ApiKey.ALTER_PARTITION_REASSIGNMENTS, alter_partition_reassignments),
            _reads(ApiKey.LIST_PARTITION_REASSIGNMENTS, list_partition_reassignments),
            _writes(ApiKey.OFFSET_DELETE, offset_delete),
            _reads(ApiKey.DESCRIBE_QUORUM, describe_quorum),
            _reads(ApiKey.DESCRIBE_CLUSTER, describe_cluster),
            _reads(ApiKey.DESCRIBE_PRODUCERS, describe_producers),
            _reads(ApiKey.DESCRIBE_TRANSACTIONS, describe_transactions),
            _reads(ApiKey.LIST_TRANSACTIONS, list_transactions),
            _reads(ApiKey.LIST_CONFIG_RESOURCES, list_config_resources),
            _reads(ApiKey.DESCRIBE_TOPIC_PARTITIONS, describe_topic_partitions),
        )
    }
)
"""Every API by its key."""
