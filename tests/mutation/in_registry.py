"""Faults planted in the registry: who writes, what is known before a decision, what is told."""

from __future__ import annotations

import pytest

from onceward.registry.election import Election
from onceward.registry.http.application import RegistryApp
from onceward.registry.schema_registry import SchemaRegistry
from onceward.registry.service import RegistryService
from onceward.registry.state import State
from onceward.registry.store import SchemaStore

from .mutation import Mutation, mutation, rewrite

Patch = pytest.MonkeyPatch


@mutation(
    "bad write",
    "id given twice",
    "acknowledged never true",
    "acknowledged stale",
    scenario="registries",
)
def new_leader_does_not_catch_up(patch: Patch) -> None:
    """Who begins to lead decides from what it happens to have read"""
    rewrite(
        patch,
        SchemaStore,
        "lead",
        ("await self.write([(encode_key(NoopKey()), None)])", "pass"),
    )


@mutation(
    "bad write",
    "id given twice",
    "acknowledged never true",
    "acknowledged stale",
    scenario="registries",
)
def old_leader_not_fenced(patch: Patch) -> None:
    """Every instance has a transactional id of its own, so a deposed leader can still write"""
    rewrite(
        patch,
        SchemaStore,
        "lead",
        ("{self._tp.topic}", "{self._tp.topic}-{self._client.client_id}"),
    )


@mutation("acknowledged never true", "acknowledged stale", "id given twice", scenario="registries")
def refused_write_acknowledged(patch: Patch) -> None:
    """A leader that learns from a write that it was deposed says that the write was made"""
    rewrite(
        patch,
        RegistryService,
        "_as_leader",
        ("deposed()\n            raise", "deposed()"),
    )


@mutation("acknowledged never true", "acknowledged stale", "id given twice", scenario="registries")
def failed_write_acknowledged(patch: Patch) -> None:
    """A write of which nobody knows whether it was made counts as made"""
    rewrite(
        patch,
        RegistryService,
        "_as_leader",
        (
            "await self.store.write(decision.records)",
            "try:\n"
            "                    await self.store.write(decision.records)\n"
            "                except RegistryError as failure:\n"
            "                    if failure.code != 50001:\n"
            "                        raise",
        ),
    )


@mutation("read stale", scenario="registries")
def acknowledged_before_it_is_read_back(patch: Patch) -> None:
    """A write is acknowledged when it is committed, and the next read may not see it"""
    rewrite(
        patch,
        SchemaStore,
        "write",
        ("\n    await self._wait_for(self._written_end)", "\n    pass"),
    )


@mutation("read stale", scenario="registries")
def forwarded_write_not_read_before_it_is_acknowledged(patch: Patch) -> None:
    """Who forwards a write passes the answer on without having read what was written"""
    rewrite(
        patch,
        RegistryApp,
        "_forwarded",
        ("if answer.status < 500:", "if False:"),
    )


@mutation("bad write", "id given twice", scenario="registries")
def erased_id_given_again(patch: Patch) -> None:
    """The highest id is that of the schemas there are, and not the highest ever given"""
    rewrite(
        patch,
        State,
        "highest_id",
        ("known.highest_id", "max(known.ids, default=0)"),
    )


@mutation("bad write", scenario="registries")
def version_given_again(patch: Patch) -> None:
    """Soft-deleted versions do not count for the number of the next one"""
    rewrite(
        patch,
        State,
        "highest_version",
        (
            "max(self._versions.get(subject, {}), default=0)",
            "max((v.version for v in self.versions(subject)), default=0)",
        ),
    )


@mutation("acknowledged stale", "acknowledged never true", scenario="registries")
def deleted_version_registered(patch: Patch) -> None:
    """A schema that was deleted counts as registered, under its deleted version"""
    rewrite(
        patch,
        SchemaRegistry,
        "registered",
        ("self.state.versions(subject)", "self.state.versions(subject, deleted=True)"),
    )


@mutation("read stale", "read never true", "acknowledged stale", scenario="registries")
def deleted_version_looked_up(patch: Patch) -> None:
    """A lookup finds deleted versions even if it is not asked to"""
    rewrite(
        patch,
        RegistryService,
        "look_up",
        ("versions(subject, deleted=deleted)", "versions(subject, deleted=True)"),
    )


@mutation("lost", "refused stale", scenario="registries")
def leader_misses_from_memory(patch: Patch) -> None:
    """A leader refuses from memory: it may have been deposed without having heard of it"""
    rewrite(
        patch,
        RegistryApp,
        "_answered",
        (
            "if not _depends_on_state(error):",
            "if self._service.leadership.is_self or not _depends_on_state(error):",
        ),
    )


@mutation("acknowledged stale", scenario="registries")
def found_in_memory_without_looking_again(patch: Patch) -> None:
    """A leader says from memory that a schema is registered, though it may be deleted by now"""
    rewrite(
        patch,
        RegistryService,
        "register",
        (" and not await self._has_moved_from(position)", ""),
    )


@mutation("registry failed", scenario="registries")
def cut_off_for_ever(patch: Patch) -> None:
    """A leader that did not reach the broker for a session does not lead again after that"""
    rewrite(
        patch,
        Election,
        "_stay",
        ("elif is_cut_off and not response.error_code:", "elif False:"),
    )


@mutation("bad write", "hidden state differs", "read never true", scenario="registries")
def uncommitted_schemas_read(patch: Patch) -> None:
    """Instances read writes that were never committed"""
    rewrite(patch, SchemaStore, "__init__", ('"read_committed"', '"read_uncommitted"'))


@mutation("registry failed", "bad write", scenario="registries")
def leads_on_after_a_failed_write(patch: Patch) -> None:
    """After a write of which nobody knows whether it was made, a leader does not begin anew"""
    rewrite(
        patch,
        SchemaStore,
        "write",
        (
            "await self.resign()\n        if isinstance",
            "if isinstance",
        ),
    )


REGISTRY: tuple[Mutation, ...] = (
    new_leader_does_not_catch_up,
    old_leader_not_fenced,
    refused_write_acknowledged,
    failed_write_acknowledged,
    acknowledged_before_it_is_read_back,
    forwarded_write_not_read_before_it_is_acknowledged,
    erased_id_given_again,
    version_given_again,
    deleted_version_registered,
    deleted_version_looked_up,
    leader_misses_from_memory,
    found_in_memory_without_looking_again,
    cut_off_for_ever,
    uncommitted_schemas_read,
    leads_on_after_a_failed_write,
)
