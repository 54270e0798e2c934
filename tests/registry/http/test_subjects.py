"""``/subjects`` as clients use it: the members of every answer, and every refusal."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from onceward.registry.service import RegistryService

from ..direct import MemoryStore
from .rest import Rest

STRING_GUID = "095d71cf-1255-6b9d-5e33-0ad575b3df5d"
R = '{"type":"record","name":"R","fields":[]}'
Q = '{"type":"record","name":"Q","fields":[{"name":"r","type":"R"}]}'


async def test_a_registration_is_answered_with_id_version_and_guid(rest: Rest) -> None:
    answer = await rest.register("s", '"string"')
    assert answer == {"id": 1, "version": 1, "guid": STRING_GUID}


async def test_a_version_has_these_members_in_this_order(rest: Rest) -> None:
    await rest.register("s", '"string"')
    expected = {
        "subject": "s",
        "version": 1,
        "id": 1,
        "guid": STRING_GUID,
        "schemaType": "AVRO",
        "schema": '"string"',
    }
    for path in (
        "/subjects/s/versions/1",
        "/subjects/s/versions/latest",
        "/subjects/s/versions/-1",
    ):
        answer = await rest.ok("GET", path)
        assert answer == expected
        assert list(answer) == list(expected)
    assert await rest.ok("POST", "/subjects/s", {"schema": '"string"'}) == expected
    assert await rest.ok("GET", "/schemas") == [expected]


async def test_references_metadata_and_rules_come_back(rest: Rest) -> None:
    await rest.register("base", R)
    references = [{"name": "R", "subject": "base", "version": 1}]
    metadata = {"tags": {"a": ["PII"]}, "properties": {"owner": "me"}, "sensitive": ["owner"]}
    rule = {"name": "r", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "disabled": False}
    rules = {"domainRules": [rule]}
    await rest.register("s", Q, references=references, metadata=metadata, ruleSet=rules)
    answer = await rest.ok("GET", "/subjects/s/versions/1")
    assert answer["references"] == references
    assert answer["metadata"] == metadata
    assert answer["ruleSet"] == rules
    assert await rest.ok("GET", "/subjects/base/versions/1/referencedby") == [2]
    assert await rest.code("DELETE", "/subjects/base") == 42206


async def test_unknown_and_null_members_are_ignored(rest: Rest) -> None:
    answer = await rest.register(
        "s", '"int"', later=1, metadata=None, ruleSet=None, references=None
    )
    assert answer["id"] == 1


@pytest.mark.parametrize(
    "subject", ["a/b/c.proto", "with space", "ü", "a:b", "..", "%2F", "a?b", "."]
)
async def test_any_text_can_be_a_subject(rest: Rest, subject: str) -> None:
    from urllib.parse import quote

    name = quote(subject, safe="").replace(".", "%2E")
    await rest.ok("POST", f"/subjects/{name}/versions", {"schema": '"string"'})
    assert await rest.ok("GET", "/subjects") == [subject]
    assert (await rest.ok("GET", f"/subjects/{name}/versions/1"))["subject"] == subject
    assert await rest.ok("GET", f"/subjects/{name}/versions") == [1]
    assert (await rest.ok("POST", f"/subjects/{name}", {"schema": '"string"'}))["id"] == 1
    assert await rest.ok("PUT", f"/config/{name}", {"compatibility": "none"}) == {
        "compatibility": "NONE"
    }
    assert (await rest.ok("POST", f"/compatibility/subjects/{name}/versions/latest",
                          {"schema": '"int"'})) == {"is_compatible": True}  # fmt: skip
    assert await rest.ok("DELETE", f"/subjects/{name}/versions/1") == 1
    assert await rest.ok("DELETE", f"/subjects/{name}/versions/1?permanent=true") == 1


@pytest.mark.parametrize(
    "name", ["%00", "a%0Ab", "__GLOBAL", "__EMPTY", "%3A.__GLOBAL%3Aa", "x" * 1001]
)
async def test_subjects_that_are_none_are_refused(rest: Rest, name: str) -> None:
    body = {"schema": '"string"'}
    assert await rest.code("POST", f"/subjects/{name}/versions", body) == 42208


async def test_lists_know_deleted_prefix_offset_and_limit(rest: Rest) -> None:
    for subject in ("ab", "aa", "b", ":.lab:ac"):
        await rest.register(subject, '"string"')
    await rest.ok("DELETE", "/subjects/b")
    assert await rest.ok("GET", "/subjects") == [":.lab:ac", "aa", "ab"]
    assert await rest.ok("GET", "/subjects?deleted=True") == [":.lab:ac", "aa", "ab", "b"]
    assert await rest.ok("GET", "/subjects?deletedOnly=true") == ["b"]
    assert await rest.ok("GET", "/subjects?subjectPrefix=a") == ["aa", "ab"]
    assert await rest.ok("GET", "/subjects?subjectPrefix=:*:a") == [":.lab:ac", "aa", "ab"]
    assert await rest.ok("GET", "/subjects?subjectPrefix=:.lab:") == [":.lab:ac"]
    assert await rest.ok("GET", "/subjects?offset=1&limit=1") == ["aa"]
    assert await rest.ok("GET", "/subjects?deleted_only=false&offset=0&limit=-1&x=y") == [
        ":.lab:ac", "aa", "ab",
    ]  # fmt: skip


async def test_deleted_versions_show_when_asked_for(rest: Rest) -> None:
    await rest.register("s", '"string"')
    await rest.register("s", '["string"]')
    await rest.ok("DELETE", "/subjects/s/versions/1")
    assert await rest.ok("GET", "/subjects/s/versions") == [2]
    assert await rest.ok("GET", "/subjects/s/versions?deleted=true") == [1, 2]
    assert await rest.ok("GET", "/subjects/s/versions?deletedOnly=true") == [1]
    assert await rest.ok("GET", "/subjects/s/versions?deletedAsNegative=true") == [-1, 2]
    assert await rest.code("GET", "/subjects/s/versions/1") == 40402
    assert (await rest.ok("GET", "/subjects/s/versions/1?deleted=true"))["deleted"] is True
    assert await rest.ok("DELETE", "/subjects/s/versions/2") == 2
    assert await rest.code("GET", "/subjects/s/versions") == 40401
    assert await rest.code("GET", "/subjects/s/versions/latest") == 40401


async def test_refusals_have_confluents_codes(rest: Rest) -> None:
    assert await rest.code("GET", "/subjects/none/versions") == 40401
    assert await rest.code("GET", "/subjects/none/versions/1") == 40401
    await rest.register("s", '"string"')
    assert await rest.code("GET", "/subjects/s/versions/9") == 40402
    for version in ("0", "abc", "-2", str(2**31), "9" * 30, "1.0", "%EF%BC%91"):
        assert await rest.code("GET", f"/subjects/s/versions/{version}") == 42202
    lookup = {"schema": '"int"'}
    assert await rest.code("POST", "/subjects/s", lookup) == 40403
    assert await rest.code("POST", "/subjects/none", lookup) == 40401
    assert await rest.code("POST", "/subjects/s/versions", lookup) == 40901
    for bad in ({}, {"schema": ""}, {"schema": "{"}, {"schema": 5}, {"schema": '"x"'},
                {"schema": '"int"', "schemaType": "XML"}, {"schema": '"int"', "references": 1},
                {"schema": '"int"', "references": [{"name": "a"}]}):  # fmt: skip
        assert await rest.code("POST", "/subjects/new/versions", bad) == 42201
    assert await rest.code("DELETE", "/subjects/s?permanent=true") == 40405
    await rest.ok("DELETE", "/subjects/s")
    assert await rest.code("DELETE", "/subjects/s") == 40404
    assert await rest.ok("DELETE", "/subjects/s?permanent=true") == [1]


async def test_a_bad_rule_set_has_a_code_of_its_own(rest: Rest) -> None:
    rule = {"name": "r", "type": "CEL"}
    for rules in (
        [rule, rule],
        [{"type": "CEL"}],
        [{**rule, "kind": "X"}],
        [{**rule, "mode": "X"}],
        [{**rule, "tags": "x"}],
        [{**rule, "params": []}],
    ):
        body = {"schema": '"int"', "ruleSet": {"domainRules": rules}}
        assert await rest.code("POST", "/subjects/s/versions", body) == 42210


async def test_a_lookup_with_normalize_finds_what_was_registered_without(rest: Rest) -> None:
    """https://github.com/confluentinc/schema-registry/issues/2956"""
    raw = '{"type":"record","name":"R","namespace":"n","fields":[{"type":"string","name":"f"}]}'
    other = '{"name":"n.R","type":"record","fields":[{"name":"f","type":{"type":"string"}}]}'
    await rest.register("raw", raw)
    assert (await rest.ok("POST", "/subjects/raw?normalize=true", {"schema": other}))[
        "version"
    ] == 1
    await rest.ok("POST", "/subjects/tidy/versions?normalize=true", {"schema": raw})
    assert (await rest.ok("POST", "/subjects/tidy?normalize=true", {"schema": other}))[
        "version"
    ] == 1


async def test_a_lookup_finds_a_schema_with_its_references_written_out(rest: Rest) -> None:
    await rest.register("base", R)
    await rest.register("s", Q, references=[{"name": "R", "subject": "base", "version": 1}])
    inlined = json.dumps(
        {"type": "record", "name": "Q", "fields": [{"name": "r", "type": json.loads(R)}]}
    )
    assert (await rest.ok("POST", "/subjects/s", {"schema": inlined}))["version"] == 1
    latest = [{"name": "R", "subject": "base", "version": -1}]
    found = await rest.ok("POST", "/subjects/s", {"schema": Q, "references": latest})
    assert found["version"] == 1


async def test_the_newest_version_with_given_metadata_is_found(rest: Rest) -> None:
    for owner in ("a", "b"):
        await rest.register("s", '"string"', metadata={"properties": {"owner": owner, "k": "v"}})
    path = "/subjects/s/metadata"
    assert (await rest.ok("GET", f"{path}?key=owner&value=a"))["version"] == 1
    assert (await rest.ok("GET", f"{path}?key=k&value=v"))["version"] == 2
    assert await rest.code("GET", f"{path}?key=owner&value=a&key=k&value=x") == 40403
    assert await rest.code("GET", f"{path}?key=owner") == 400
    assert await rest.code("GET", "/subjects/none/metadata?key=a&value=b") == 40401


async def test_protobuf_comes_as_text_or_base64_and_leaves_as_asked(rest: Rest) -> None:
    text = 'syntax = "proto3"; message A { string s = 1; }'
    await rest.register("s", text, schemaType="PROTOBUF")
    serialized = (await rest.ok("GET", "/schemas/ids/1?format=serialized"))["schema"]
    again = await rest.register("s", serialized, schemaType="PROTOBUF")
    assert again["id"] == 1
    stored = (await rest.ok("GET", "/subjects/s/versions/1"))["schema"]
    assert stored.startswith('syntax = "proto3";')
    response = await rest.client.get("/subjects/s/versions/1/schema")
    assert response.text == stored


async def test_many_at_once_get_one_version_each(rest: Rest, service: RegistryService) -> None:
    """https://github.com/Apicurio/apicurio-registry/issues/5162"""
    await rest.ok("PUT", "/config", {"compatibility": "NONE"})

    async def register(number: int) -> tuple[int, Any]:
        schema = json.dumps({"type": "fixed", "name": f"F{number}", "size": 1})
        return number, await rest.register("s", schema)

    answers = await asyncio.gather(*(register(index % 25) for index in range(50)))
    by_schema: dict[int, set[tuple[int, int]]] = {}
    for number, answer in answers:
        by_schema.setdefault(number, set()).add((answer["id"], answer["version"]))
    assert all(len(found) == 1 for found in by_schema.values())
    assert sorted(found.pop()[1] for found in by_schema.values()) == list(range(1, 26))


async def test_a_registration_whose_answer_was_lost_can_be_repeated(
    rest: Rest, service: RegistryService
) -> None:
    assert isinstance(service.store, MemoryStore)
    service.store.fail_next = True
    assert await rest.code("POST", "/subjects/s/versions", {"schema": '"int"'}) == 50001
    assert (await rest.register("s", '"int"'))["version"] == 1
