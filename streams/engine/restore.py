"""Bringing stores up to date: the changelog is rolled forward from each store's checkpoint.

The target is the high watermark, not the last stable offset: a transaction of the previous owner
that is committed but whose markers are not all written yet must be waited for. Reading is
``read_committed``, so that aborted writes never get into a store; an open transaction of a dead
owner holds the restore up until it is aborted.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from onceward.broker.client import Consumer, TopicPartition

from ..state import StoreTransaction
from .kafka import Kafka

logger = logging.getLogger(__name__)
_WAIT_MS = 500


async def restore(kafka: Kafka, stores: Mapping[TopicPartition, StoreTransaction]) -> int:
    """Roll forward ``stores`` (by changelog partition) to the end; returns the records applied.

    Raises KafkaError; stores stay usable, at their checkpoints, and restoring goes on from there.
    """
    if not stores:
        return 0
    consumer = kafka.consumer(isolation="read_committed", auto_offset_reset="none")
    await consumer.start()
    try:
        targets = await consumer.end_offsets(list(stores), "read_uncommitted")
        starts = await consumer.beginning_offsets(list(stores))
        behind: dict[TopicPartition, int] = {}
        for tp, transaction in stores.items():
            store = transaction.store
            if store.checkpoint > targets[tp] or 0 < store.checkpoint < starts[tp]:
                logger.warning(
                    "state of %s is at changelog offset %d, but the changelog has %d to %d: "
                    "it was replaced, so the state is rebuilt from it",
                    tp, store.checkpoint, starts[tp], targets[tp],
                )  # fmt: skip
                store.clear()
                transaction.forget_cache()
            if store.checkpoint < targets[tp]:
                behind[tp] = targets[tp]
        if not behind:
            return 0
        consumer.assign(list(behind))
        for tp in behind:
            consumer.seek(tp, max(stores[tp].store.checkpoint, starts[tp]))
        return await _roll_forward(consumer, stores, behind)
    finally:
        await consumer.stop()


async def _roll_forward(
    consumer: Consumer,
    stores: Mapping[TopicPartition, StoreTransaction],
    targets: dict[TopicPartition, int],
) -> int:
    applied = 0
    left = dict(targets)
    while left:
        for batch in await consumer.fetch(timeout_ms=_WAIT_MS):
            records = batch.records
            changes = [
                (key, value)
                for key, value in zip(records.keys, records.values, strict=True)
                if key is not None
            ]
            stores[batch.tp].store.write(changes, records.next_offset)
            stores[batch.tp].forget_cache()
            applied += len(changes)
            if records.next_offset >= left.get(batch.tp, 0):
                left.pop(batch.tp, None)
                consumer.pause([batch.tp])
        for tp, target in list(left.items()):
            position = consumer.position(tp)
            if position is not None and position >= target:
                stores[tp].store.write((), position)  # only control records and aborted data
                del left[tp]
                consumer.pause([tp])
    logger.info("restored %d records into %d table partitions", applied, len(targets))
    return applied
