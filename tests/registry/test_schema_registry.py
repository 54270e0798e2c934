"""The decisions: ids, versions, deletion, references, modes, and what survives a restart."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from onceward.registry.errors import RegistryError
from onceward.registry.records import DeleteSubjectKey, SchemaKey, encode_key
from onceward.registry.schemas import Reference

from .direct import Direct, compacted, replayed


def record(*fields: str, name: str = "R") -> str:
    """An Avro record of optional strings."""
    described = [{"name": f, "type": ["null", "string"], "default": None} for f in fields]
    return json.dumps({"type": "record", "name": name, "fields": described}, separators=(",", ":"))


def code_of(action: Callable[[], Any]) -> int:
    with pytest.raises(RegistryError) as caught:
        action()
    return caught.value.code


@pytest.fixture
def registry() -> Direct:
    return Direct()


def test_ids_and_versions_count_from_one(registry: Direct) -> None:
    first = registry.register("a", record("x"))
    second = registry.register("a", record("x", "y"))
    assert [(first.version, first.id), (second.version, second.id)] == [(1, 1), (2, 2)]


def test_the_same_schema_has_one_id_under_every_subject(registry: Direct) -> None:
    assert registry.register("a", record("x")).id == registry.register("b", record("x")).id == 1
    assert registry.register("b", record("y")).id == 2


def test_registering_again_writes_nothing_even_when_it_is_not_the_newest(registry: Direct) -> None:
    registry.register("a", record("x"))
    registry.register("a", record("x", "y"))
    written = len(registry.log)
    again = registry.register("a", record("x"))
    assert (again.version, again.id) == (1, 1)
    assert len(registry.log) == written


def test_records_are_what_another_registry_would_read(registry: Direct) -> None:
    registry.register("a", '"string"')
    registry.register("p", 'syntax = "proto3"; message A {}', kind="PROTOBUF")
    assert registry.log[0] == (
        b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}',
        b'{"subject":"a","version":1,"id":1,"schema":"\\"string\\"","deleted":false}',
    )
    value = registry.log[1][1]
    assert value is not None
    assert value.startswith(b'{"subject":"p","version":1,"id":2,"schemaType":"PROTOBUF","schema":"')


def test_metadata_is_part_of_what_an_id_stands_for(registry: Direct) -> None:
    plain = registry.register("a", '"string"')
    marked = registry.register("a", '"string"', metadata={"properties": {"v": "1"}})
    assert (plain.id, marked.id, marked.version) == (1, 2, 2)


def test_a_request_without_schema_takes_that_of_the_newest_version(registry: Direct) -> None:
    assert code_of(lambda: registry.register("a", "")) == 42201
    registry.register("a", '"string"')
    marked = registry.register("a", "", metadata={"properties": {"v": "1"}})
    assert (marked.version, marked.content.text) == (2, '"string"')


def test_an_incompatible_schema_is_refused_with_the_reason(registry: Direct) -> None:
    registry.register("a", '"string"')
    with pytest.raises(RegistryError) as caught:
        registry.register("a", '"int"')
    assert (caught.value.code, caught.value.status) == (40901, 409)
    assert "TYPE_MISMATCH" in caught.value.message


def test_a_soft_deleted_version_does_not_count_for_compatibility(registry: Direct) -> None:
    registry.register("a", '"string"')
    registry.delete("a", 1)
    assert registry.register("a", '"int"').version == 2


def test_a_schema_registered_again_after_soft_deletion_keeps_its_id(registry: Direct) -> None:
    registry.register("a", record("x"))
    registry.register("a", record("x", "y"))
    registry.register("a", record("x", "y", "z"))
    registry.delete("a", 2)
    again = registry.register("a", record("x", "y"))
    assert (again.version, again.id) == (4, 2)
    state = registry.machine.state
    assert [one.version for one in state.versions("a", deleted=True)] == [1, 3, 4]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("compact", [False, True])
def test_no_id_is_given_twice_after_the_last_schema_was_erased(
    registry: Direct, restart: bool, compact: bool
) -> None:
    registry.register("a", record("x"))
    registry.register("b", record("y"))
    registry.delete("b")
    registry.delete("b", permanent=True)
    if restart:
        registry.machine = replayed(compacted(registry.log) if compact else registry.log)
    assert registry.register("c", record("z")).id == 3


def test_deleting_in_two_steps_has_its_codes(registry: Direct) -> None:
    assert code_of(lambda: registry.delete("a")) == 40401
    registry.register("a", record("x"))
    registry.register("a", record("x", "y"))
    assert code_of(lambda: registry.delete("a", permanent=True)) == 40405
    assert code_of(lambda: registry.delete("a", 1, permanent=True)) == 40407
    assert code_of(lambda: registry.delete("a", 9)) == 40402
    assert registry.delete("a", 1) == 1
    assert code_of(lambda: registry.delete("a", 1)) == 40406
    assert registry.delete("a", 1, permanent=True) == 1
    assert registry.delete("a") == [2]
    assert code_of(lambda: registry.delete("a")) == 40404
    assert registry.delete("a", permanent=True) == [2]
    assert code_of(lambda: registry.delete("a", permanent=True)) == 40401


def test_a_subject_is_soft_deleted_with_one_record_that_marks_versions(registry: Direct) -> None:
    registry.register("a", record("x"))
    registry.register("a", record("x", "y"))
    assert registry.delete("a") == [1, 2]
    assert registry.log[-1] == (
        encode_key(DeleteSubjectKey("a")),
        b'{"subject":"a","version":2}',
    )
    third = registry.register("a", record("z"))
    assert third.version == 3
    again = replayed(compacted(registry.log))
    assert [one.deleted for one in again.state.versions("a", deleted=True)] == [True, True, False]


def test_version_minus_one_deletes_the_newest_live_version(registry: Direct) -> None:
    registry.register("a", record("x"))
    registry.register("a", record("x", "y"))
    assert registry.delete("a", -1) == 2
    assert registry.delete("a", -1) == 1
    assert code_of(lambda: registry.delete("a", -1)) == 40402


def test_erasing_a_subject_erases_its_config_and_mode(registry: Direct) -> None:
    registry.register("a", record("x"))
    registry.apply(registry.machine.set_config("a", {"compatibilityLevel": "full"}))
    registry.apply(registry.machine.set_mode("a", "READWRITE", force=False))
    registry.delete("a")
    assert registry.machine.settings.own_config("a") == {"compatibilityLevel": "FULL"}
    registry.delete("a", permanent=True)
    assert registry.machine.settings.own_config("a") is None
    assert registry.machine.state.mode("a") is None


REFERRING = '{"type":"record","name":"Q","fields":[{"name":"r","type":"R"}]}'


def test_what_is_referred_to_cannot_be_deleted(registry: Direct) -> None:
    registry.register("base", record("x"))
    registry.register("user", REFERRING, references=[Reference("R", "base", 1)])
    assert code_of(lambda: registry.delete("base")) == 42206
    assert code_of(lambda: registry.delete("base", 1)) == 42206
    registry.delete("user")
    registry.delete("base")
    # a soft-deleted schema can still be read by id, so what it needs stays
    assert code_of(lambda: registry.delete("base", permanent=True)) == 42206
    registry.delete("user", permanent=True)
    registry.delete("base", permanent=True)
    assert not list(registry.machine.state.subjects)


def test_a_reference_to_the_newest_version_is_fixed_when_it_is_registered(
    registry: Direct,
) -> None:
    registry.register("base", record("x"))
    registry.register("base", record("x", "y"))
    user = registry.register("user", REFERRING, references=[Reference("R", "base", -1)])
    assert user.content.references == (Reference("R", "base", 2),)


@pytest.mark.parametrize("version", [-1, 1, 7])
def test_a_reference_that_leads_nowhere_is_refused(registry: Direct, version: int) -> None:
    reference = Reference("R", "base", version)
    assert code_of(lambda: registry.register("user", REFERRING, references=[reference])) == 42201


def test_a_subject_whose_versions_refer_to_each_other_may_be_deleted(registry: Direct) -> None:
    registry.apply(registry.machine.set_config("s", {"compatibilityLevel": "NONE"}))
    registry.register("s", record("x"))
    registry.register("s", REFERRING, references=[Reference("R", "s", 1)])
    assert code_of(lambda: registry.delete("s", 1)) == 42206
    assert registry.delete("s") == [1, 2]
    assert registry.delete("s", permanent=True) == [1, 2]


def test_contexts_count_ids_on_their_own(registry: Direct) -> None:
    registry.register("a", record("x"))
    registry.register("b", record("y"))
    lab = registry.register(":.lab:a", record("y"))
    assert (lab.id, lab.version) == (1, 1)
    assert registry.machine.state.contexts == [".", ".lab"]
    assert registry.register(":.lab:b", record("y")).id == 1


def test_a_reference_without_context_is_in_that_of_the_schema(registry: Direct) -> None:
    registry.register(":.lab:base", record("x"))
    registry.register(":.lab:user", REFERRING, references=[Reference("R", "base", 1)])
    assert code_of(lambda: registry.delete(":.lab:base")) == 42206
    reference = Reference("R", "base", 1)
    assert code_of(lambda: registry.register("user", REFERRING, references=[reference])) == 42201


def test_a_read_only_registry_changes_nothing(registry: Direct) -> None:
    machine = registry.machine
    registry.register("a", record("x"))
    registry.apply(machine.set_mode("", "READONLY", force=False))
    assert code_of(lambda: registry.register("a", record("x", "y"))) == 42205
    assert code_of(lambda: registry.delete("a")) == 42205
    assert code_of(lambda: machine.set_config("a", {"compatibilityLevel": "NONE"})) == 42205
    registry.apply(machine.set_mode("a", "READWRITE", force=False))
    assert registry.register("a", record("x", "y")).version == 2
    assert code_of(lambda: registry.register("b", record("x"))) == 42205


def test_import_takes_ids_and_versions_as_they_are_given(registry: Direct) -> None:
    machine = registry.machine
    assert code_of(lambda: registry.register("a", record("x"), id=7)) == 42205
    registry.apply(machine.set_mode("a", "IMPORT", force=False))
    assert code_of(lambda: registry.register("a", record("x"))) == 42205
    one = registry.register("a", record("x"), id=7, version=3)
    assert (one.id, one.version) == (7, 3)
    assert code_of(lambda: registry.register("a", record("y"), id=7)) == 42205
    assert code_of(lambda: registry.register("a", record("x"), id=8)) == 42207
    assert code_of(lambda: registry.register("a", record("y"), id=9, version=3)) == 42205
    assert registry.register("b", record("z")).id == 8


def test_import_needs_a_subject_without_live_versions(registry: Direct) -> None:
    machine = registry.machine
    registry.register("a", record("x"))
    assert code_of(lambda: machine.set_mode("a", "IMPORT", force=False)) == 42205
    assert code_of(lambda: machine.set_mode("", "IMPORT", force=False)) == 42205
    registry.delete("a")
    registry.apply(machine.set_mode("a", "IMPORT", force=False))
    assert machine.state.versions("a", deleted=True) == []
    assert registry.register("a", record("q"), id=1).id == 1


def test_a_schema_comes_back_after_its_id_was_imported_with_another_content(
    registry: Direct,
) -> None:
    """https://github.com/confluentinc/schema-registry/issues/2430"""
    machine = registry.machine
    registry.register("a", record("x"))
    registry.delete("a")
    registry.apply(machine.set_mode("b", "IMPORT", force=False))
    assert code_of(lambda: registry.register("b", record("y"), id=1)) == 42205
    registry.apply(machine.set_mode("a", "IMPORT", force=False))
    assert registry.register("b", record("y"), id=1).id == 1
    registry.apply(machine.set_mode("a", "READWRITE", force=False))
    assert registry.register("a", record("x")).id == 2


def test_the_config_is_looked_for_in_the_subject_its_context_and_then_everywhere(
    registry: Direct,
) -> None:
    machine = registry.machine

    def level(subject: str) -> str:
        return machine.settings.config_for(subject).level

    assert level("a") == "BACKWARD"
    registry.apply(machine.set_config("", {"compatibilityLevel": "FULL"}))
    assert level("a") == level(":.lab:a") == "FULL"
    registry.apply(machine.set_config(":.lab:", {"compatibilityLevel": "NONE"}))
    assert (level("a"), level(":.lab:a")) == ("FULL", "NONE")
    registry.apply(machine.set_config(":.lab:a", {"normalize": True}))
    config = machine.settings.config_for(":.lab:a")
    assert (config.level, config.normalize) == ("NONE", True)
    registry.apply(machine.delete_config(""))
    assert level("a") == "BACKWARD"


def test_only_versions_of_the_same_compatibility_group_are_compared(registry: Direct) -> None:
    registry.apply(registry.machine.set_config("a", {"compatibilityGroup": "major"}))
    registry.register("a", '"string"', metadata={"properties": {"major": "1"}})
    assert registry.register("a", '"int"', metadata={"properties": {"major": "2"}}).version == 2
    two = {"properties": {"major": "2"}}
    assert code_of(lambda: registry.register("a", '"string"', metadata=two)) == 40901


@pytest.mark.parametrize("odd", [
    b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":0}',
    b'{"subject":"a","version":1,"magic":1,"keytype":"SCHEMA"}',
])  # fmt: skip
def test_an_erased_schema_stays_erased_though_its_key_was_spelled_otherwise(
    registry: Direct, odd: bytes
) -> None:
    """https://github.com/confluentinc/schema-registry/issues/4420 and /issues/2961"""
    registry.log.append((odd, b'{"subject":"a","version":1,"id":5,"schema":"\\"int\\""}'))
    registry.machine = replayed(registry.log)
    registry.delete("a", 1)
    registry.delete("a", 1, permanent=True)
    left = replayed(compacted(registry.log))
    assert left.state.versions("a", deleted=True) == []
    assert left.state.highest_id(".") == 5


def test_an_empty_value_deletes_as_a_tombstone_does(registry: Direct) -> None:
    """Karapace erases like that."""
    registry.register("a", record("x"))
    assert registry.machine.replay(encode_key(SchemaKey("a", 1)), b"") is None
    assert registry.machine.state.versions("a", deleted=True) == []


def test_bad_records_are_skipped_and_said(registry: Direct) -> None:
    machine = registry.machine
    key = encode_key(SchemaKey("a", 1))
    for bad in (
        (b"no json", b"{}"),
        (b'{"keytype":"LATER"}', b"{}"),
        (key, b'{"id":"x","schema":"s"}'),
        (key, b'{"id":1}'),
        (key, b"\xff"),
        (key, b'{"id":1,"schema":"s","references":[{"name":"n"}]}'),
    ):
        assert machine.replay(*bad) is not None
    assert not list(machine.state.subjects)
    assert machine.replay(key, b'{"id":1,"schema":"not a schema of any kind"}') is None
    assert [one.id for one in machine.state.versions("a")] == [1]


def test_a_record_that_gives_an_id_another_meaning_is_skipped(registry: Direct) -> None:
    registry.register("a", record("x"))
    value = b'{"subject":"b","version":1,"id":1,"schema":"\\"int\\"","deleted":false}'
    problem = registry.machine.replay(encode_key(SchemaKey("b", 1)), value)
    assert problem is not None and "id 1" in problem
    assert registry.machine.state.versions("b") == []


def test_clearing_forgets_soft_deleted_versions_only(registry: Direct) -> None:
    registry.register("a", record("x"))
    registry.register("a", record("x", "y"))
    registry.delete("a", 1)
    key = b'{"keytype":"CLEAR_SUBJECT","subject":"a","magic":0}'
    assert registry.machine.replay(key, b'{"subject":"a"}') is None
    assert [one.version for one in registry.machine.state.versions("a", deleted=True)] == [2]
