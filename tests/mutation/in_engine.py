"""Faults planted in the engine: what is committed together, what is undone, who owns what."""

from __future__ import annotations

import pytest

from onceward.broker.client import OffsetAndMetadata
from onceward.streams.engine import commit, task_manager
from onceward.streams.engine.assignor import TaskAssignor
from onceward.streams.engine.commit import CommitCycle
from onceward.streams.engine.engine import Engine
from onceward.streams.engine.task import Task
from onceward.streams.engine.task_manager import TaskManager
from onceward.streams.state.transaction import StoreTransaction

from .in_client import offsets_without_generation
from .mutation import Mutation, mutation, rewrite

Patch = pytest.MonkeyPatch


@mutation("offset went back", "lost")
def offsets_committed_before_processing(patch: Patch) -> None:
    """Offsets of fetched records are committed before an agent has seen them."""
    rewrite(
        patch,
        CommitCycle,
        "before_processing",
        ("self._is_at_most_once and positions", "positions"),
    )


@mutation("duplicated", "wrong")
def offsets_committed_after_the_transaction(patch: Patch) -> None:
    """Offsets are committed on their own, right after the transaction with the outputs."""
    rewrite(
        patch,
        CommitCycle,
        "_write",
        ("    if positions:\n        group = ", "    if False:\n        group = "),
        (
            "    await producer.commit()\n",
            "    await producer.commit()\n"
            "    if positions:\n"
            "        await self._consumer.commit(_offsets(positions))\n",
        ),
    )


@mutation("lost")
def offsets_committed_ahead_of_the_transaction(patch: Patch) -> None:
    """Offsets are committed on their own, right before the transaction with the outputs."""
    rewrite(
        patch,
        CommitCycle,
        "_write",
        (
            "    if positions:\n        group = ",
            "    if positions:\n"
            "        await self._consumer.commit(_offsets(positions))\n"
            "    if False:\n        group = ",
        ),
    )


@mutation("lost", scenario="payments")
def a_cut_takes_records_in_progress_for_done(patch: Patch) -> None:
    """The offsets of a cut are those behind the block in hand, not behind its last done record."""
    rewrite(
        patch,
        Task,
        "positions",
        ("done = max(feed.index for feed in self._active(block))", "done = len(block)"),
    )


@mutation("lost", "wrong", scenario="payments")
def a_cut_does_not_wait_for_agents(patch: Patch) -> None:
    """Tasks are committed in the middle of a record."""
    rewrite(
        patch,
        Engine,
        "_commit",
        ("    await self._wait_for_cut(candidates, wait=wait)\n", ""),
        ("ready = [task for task in candidates if task.is_parked]", "ready = candidates"),
    )


@mutation("duplicated", "lost", "table differs from changelog")
def changelog_omitted(patch: Patch) -> None:
    """What agents write to tables is flushed to the stores and sent to no changelog."""
    rewrite(
        patch,
        commit,
        "_share",
        ("        changelogs[name] = TopicPartition(topic, task.id.partition)\n", ""),
        (
            "outputs.append(PartitionOutput(topic, task.id.partition, keys, values, timestamps, "
            "None))",
            "transaction.flush(transaction.store.checkpoint)",
        ),
    )


@mutation("wrong", "table differs")
def state_flushed_before_the_commit(patch: Patch) -> None:
    """Stores are written to at the cut, before the transaction is committed."""
    rewrite(
        patch,
        CommitCycle,
        "write",
        ("            share.task.stores[table].flush(ends[changelog])\n", "            pass\n"),
    )
    rewrite(
        patch,
        commit,
        "_share",
        (
            "    share = _Share(",
            "    for name in changelogs:\n"
            "        task.stores[name].flush(task.stores[name].store.checkpoint)\n"
            "    share = _Share(",
        ),
    )


@mutation("wrong", "table differs", "duplicated")
def uncommitted_state_survives_a_rewind(patch: Patch) -> None:
    """After a failed commit the tables keep what was written since the last good one."""
    rewrite(
        patch,
        StoreTransaction,
        "drop",
        ("    self.written = {}\n", "    self.written = {**self._committing, **self.written}\n"),
    )


@mutation("duplicated", "wrong")
def outputs_survive_a_rewind(patch: Patch) -> None:
    """After a failed commit the outputs of the next transaction, begun meanwhile, are kept."""
    rewrite(patch, Task, "_drop_effects", ("    self.outputs.take()\n", ""))


@mutation("offset went back", "duplicated", "wrong", scenario="payments")
def fetched_records_survive_a_rewind(patch: Patch) -> None:
    """After a failed commit the records that waited for the agents are kept, and fetched again."""
    rewrite(patch, Task, "_drop_effects", ("    self.group.clear()\n", ""))


@mutation("lost", "no progress", "wrong")
def consumer_not_moved_back(patch: Patch) -> None:
    """After a failed commit the consumer goes on where it was."""
    rewrite(
        patch,
        TaskManager,
        "_bring_up",
        (
            "self._consumer.seek(tp, offset)",
            "if self._consumer.position(tp) == 0:\n"
            "                    self._consumer.seek(tp, offset)",
        ),
    )


@mutation("wrong", "duplicated", scenario="version 1")
def unknown_outcome_taken_for_an_abort(patch: Patch) -> None:
    """After a commit without an answer tasks go on from the offsets they know, without asking."""
    rewrite(
        patch,
        TaskManager,
        "_starts",
        (
            "    starts = await",
            "    for task in self:\n"
            "        known = {tp: at for tp, at in task._committed.items() if tp in committed}\n"
            "        committed |= {tp: OffsetAndMetadata(at) for tp, at in known.items()}\n"
            "    starts = await",
        ),
    )
    patch.setattr(task_manager, "OffsetAndMetadata", OffsetAndMetadata, raising=False)


@mutation("no progress", "duplicated", "wrong")
def failed_transaction_not_aborted(patch: Patch) -> None:
    """After a failed commit the transaction is left open, and the next one goes on in it."""
    rewrite(patch, CommitCycle, "recover", ("await producer.abort()", "producer._on_ended()"))


@mutation("table differs from changelog", "duplicated", "wrong", scenario="zombies")
def restore_trusts_what_it_finds(patch: Patch) -> None:
    """A store that has something in it is not rolled forward: it might be from long ago."""
    rewrite(
        patch,
        task_manager,
        "restore",
        ("if store.checkpoint < targets[tp]:", "if store.checkpoint == 0 < targets[tp]:"),
    )


@mutation("wrong", "table differs from changelog")
def restore_reads_aborted_records(patch: Patch) -> None:
    """Stores are rolled forward with the records of aborted transactions, too."""
    rewrite(
        patch,
        task_manager,
        "restore",
        ('consumer(isolation="read_committed"', 'consumer(isolation="read_uncommitted"'),
    )


@mutation("duplicated", "wrong", "table differs from changelog", scenario="slow markers")
def restore_stops_at_the_last_stable_offset(patch: Patch) -> None:
    """Stores are not rolled forward over what the owner before committed a moment ago."""
    rewrite(
        patch,
        task_manager,
        "restore",
        ('end_offsets(list(stores), "read_uncommitted")', "end_offsets(list(stores))"),
    )


@mutation("duplicated", "table differs from changelog", "wrong", scenario="zombies")
def checkpoint_ahead_of_the_store(patch: Patch) -> None:
    """A store's checkpoint lies three offsets behind what it holds."""
    rewrite(
        patch,
        StoreTransaction,
        "flush",
        (
            "self.store.write(self._prepared.items(), checkpoint)",
            "self.store.write(self._prepared.items(), checkpoint + 3)",
        ),
    )


@mutation("duplicated", "wrong", "table differs")
def writes_under_commit_not_seen(patch: Patch) -> None:
    """An agent does not see what it wrote to a table while that is being committed."""
    rewrite(
        patch,
        StoreTransaction,
        "prepare",
        ("self._committing, self.written = self.written, {}", "self.written = {}"),
    )
    rewrite(
        patch,
        StoreTransaction,
        "flush",
        ("self._cache.update(self._committing)", "self._cache.clear()"),
    )


@mutation("wrong", "duplicated", "offset went back", scenario="slow markers")
def offsets_read_while_undecided(patch: Patch) -> None:
    """A new owner does not wait for the transaction that decides where it goes on."""
    rewrite(
        patch,
        TaskManager,
        "_starts",
        ("require_stable=True", "require_stable=False"),
    )


@mutation("worker failed", "duplicated", "wrong", "lost", scenario="zombies")
def lost_tasks_kept(patch: Patch) -> None:
    """A worker that was expelled from the group keeps its tasks."""
    rewrite(
        patch,
        Engine,
        "on_lost",
        ("    await self._tasks.close(self._tasks.affected(partitions))\n", ""),
    )


@mutation("worker failed", "duplicated", "wrong")
def revoked_tasks_kept(patch: Patch) -> None:
    """A worker goes on with partitions that were taken from it."""
    rewrite(patch, Engine, "on_revoked", ("    await self._tasks.close(tasks)\n", ""))


@mutation(covered_by="the generation in the offset commit")
def dead_owner_not_fenced(patch: Patch) -> None:
    """The new owner of a dead worker's partitions does not fence its transactional id."""
    rewrite(
        patch,
        TaskManager,
        "_bring_up",
        ("                await self._kafka.admin().fence_producers(fenced)\n", ""),
    )


@mutation("no progress", "duplicated", "wrong", "offset went back", scenario="zombies")
def nobody_fenced(patch: Patch) -> None:
    """Neither the transactional id of a dead worker nor the generation of a zombie is refused."""
    rewrite(
        patch,
        TaskManager,
        "_bring_up",
        ("                await self._kafka.admin().fence_producers(fenced)\n", ""),
    )
    offsets_without_generation.plant(patch)


@mutation("lost", "wrong")
def repartitioned_by_source(patch: Patch) -> None:
    """Where a record goes depends on where it comes from, and not on its key alone."""
    rewrite(
        patch,
        commit,
        "split",
        (
            "    places = partition_keys(output.keys, count)\n",
            "    places = partition_keys(output.keys, count)\n"
            "        places = [(each + source_partition) % count for each in places]\n",
        ),
    )


@mutation("duplicated", "wrong", "offset went back", scenario="zombies")
def partition_given_to_two_workers(patch: Patch) -> None:
    """The leader gives a partition away before its owner has let go of it."""
    rewrite(
        patch,
        TaskAssignor,
        "assign",
        ("        if holder == member:\n", "        if True:\n"),
    )


@mutation("wrong", "aborted read", "duplicated", "worker failed")
def agents_read_uncommitted(patch: Patch) -> None:
    """Agents are given records of transactions that are open or were aborted."""
    rewrite(
        patch,
        Engine,
        "_make_consumer",
        ('isolation="read_committed"', 'isolation="read_uncommitted"'),
    )


@mutation("worker failed", "lost", "table differs", "sink differs", scenario="payments")
def kafka_commits_before_the_sink(patch: Patch) -> None:
    """The transaction with the offsets is committed before the database's."""
    rewrite(
        patch,
        CommitCycle,
        "write",
        ("    batches.extend(await self._sinks.commit(sinks))\n", ""),
        (
            "    self.commits += 1\n",
            "    batches.extend(await self._sinks.commit(sinks))\n    self.commits += 1\n",
        ),
    )


ENGINE: tuple[Mutation, ...] = (
    offsets_committed_before_processing,
    offsets_committed_after_the_transaction,
    offsets_committed_ahead_of_the_transaction,
    a_cut_takes_records_in_progress_for_done,
    a_cut_does_not_wait_for_agents,
    changelog_omitted,
    state_flushed_before_the_commit,
    uncommitted_state_survives_a_rewind,
    outputs_survive_a_rewind,
    fetched_records_survive_a_rewind,
    consumer_not_moved_back,
    unknown_outcome_taken_for_an_abort,
    failed_transaction_not_aborted,
    restore_trusts_what_it_finds,
    restore_reads_aborted_records,
    restore_stops_at_the_last_stable_offset,
    checkpoint_ahead_of_the_store,
    writes_under_commit_not_seen,
    offsets_read_while_undecided,
    lost_tasks_kept,
    revoked_tasks_kept,
    dead_owner_not_fenced,
    nobody_fenced,
    repartitioned_by_source,
    partition_given_to_two_workers,
    agents_read_uncommitted,
    kafka_commits_before_the_sink,
)
