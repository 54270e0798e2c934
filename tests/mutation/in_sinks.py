"""Faults planted in sinks: positions, fencing, and what is skipped when records run again."""

from __future__ import annotations

import pytest

from onceward.streams.engine.sinks import Sinks
from onceward.streams.sinks.memory import MemorySink

from .mutation import Mutation, mutation, rewrite

Patch = pytest.MonkeyPatch


@mutation("sink differs", scenario="payments")
def position_outside_the_databases_transaction(patch: Patch) -> None:
    """Rows are committed first, the position after that, in a transaction of its own."""
    rewrite(
        patch,
        MemorySink,
        "commit",
        (
            "    refused = database",
            '    database.step("committed", self.name)\n'
            "    await database.wait()\n"
            "    await database.wait()\n"
            '    database.step("commit", self.name)\n'
            "    refused = database",
        ),
    )


@mutation("sink differs", scenario="payments")
def position_not_compared(patch: Patch) -> None:
    """A worker that lost a partition may still write to the database for it."""
    rewrite(patch, MemorySink, "commit", ("if current is None or ", "if False and "))


@mutation(covered_by="the position is compared as well")
def new_owner_not_noted_in_the_database(patch: Patch) -> None:
    """Taking a partition over leaves its owner's epoch in the database as it is."""
    rewrite(patch, MemorySink, "take_over", ("known.epoch + 1", "known.epoch"))


@mutation("sink differs", scenario="payments")
def nothing_skipped_after_a_crash(patch: Patch) -> None:
    """What the database has already is written to it once more when records run again."""
    rewrite(
        patch,
        Sinks,
        "_without_known",
        ("if record.offset >= claim.next_offset:", "if True:"),
    )


@mutation("sink differs", scenario="payments")
def one_too_few_skipped_after_a_crash(patch: Patch) -> None:
    """The last record that the database has is taken for one that it does not have."""
    rewrite(
        patch,
        Sinks,
        "_without_known",
        ("if record.offset >= claim.next_offset:", "if record.offset >= claim.next_offset - 1:"),
    )


SINKS: tuple[Mutation, ...] = (
    position_outside_the_databases_transaction,
    position_not_compared,
    new_owner_not_noted_in_the_database,
    nothing_skipped_after_a_crash,
    one_too_few_skipped_after_a_crash,
)
