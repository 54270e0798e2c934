"""``/schemas`` and ``/contexts``."""

from __future__ import annotations

import pytest

from .rest import Rest

STRING_GUID = "095d71cf-1255-6b9d-5e33-0ad575b3df5d"


async def test_a_schema_by_its_id_has_these_members(rest: Rest) -> None:
    await rest.register("s", '"string"')
    plain = {"guid": STRING_GUID, "schemaType": "AVRO", "schema": '"string"'}
    assert await rest.ok("GET", "/schemas/ids/1") == plain
    assert await rest.ok("GET", "/schemas/ids/1?subject=s") == {
        **plain,
        "subject": "s",
        "version": 1,
    }
    assert await rest.ok("GET", "/schemas/ids/1?fetchMaxId=true") == {**plain, "maxId": 1}
    response = await rest.client.get("/schemas/ids/1/schema")
    assert response.text == '"string"'


async def test_an_id_outlives_soft_deletion_but_not_erasure(rest: Rest) -> None:
    await rest.register("a", '"string"')
    await rest.register("b", '"string"')
    assert await rest.ok("GET", "/schemas/ids/1/versions") == [
        {"subject": "a", "version": 1},
        {"subject": "b", "version": 1},
    ]
    await rest.ok("DELETE", "/subjects/a")
    assert await rest.ok("GET", "/schemas/ids/1/subjects") == ["b"]
    assert await rest.ok("GET", "/schemas/ids/1/subjects?deleted=true") == ["a", "b"]
    assert await rest.ok("GET", "/schemas/ids/1/versions?subject=b") == [
        {"subject": "b", "version": 1}
    ]
    await rest.ok("DELETE", "/subjects/a?permanent=true")
    await rest.ok("DELETE", "/subjects/b")
    assert (await rest.ok("GET", "/schemas/ids/1"))["schema"] == '"string"'
    await rest.ok("DELETE", "/subjects/b?permanent=true")
    for path in ("/schemas/ids/1", "/schemas/ids/1/versions", "/schemas/ids/1/subjects"):
        assert await rest.code("GET", path) == 40403


@pytest.mark.parametrize("text", ["abc", "-1", "1e3", "%F0%9F%8E%88", "1" * 40])
async def test_what_is_no_id_is_not_found(rest: Rest, text: str) -> None:
    assert await rest.code("GET", f"/schemas/ids/{text}") == 404


async def test_a_guid_leads_to_the_schema_and_its_ids(rest: Rest) -> None:
    await rest.register("s", '"string"')
    await rest.register(":.lab:t", '"string"')
    found = await rest.ok("GET", f"/schemas/guids/{STRING_GUID.upper()}")
    assert found["schema"] == '"string"'
    assert await rest.ok("GET", f"/schemas/guids/{STRING_GUID}/ids") == [
        {"context": ".", "id": 1},
        {"context": ".lab", "id": 1},
    ]
    for wrong in ("x", STRING_GUID.replace("0", "1")):
        assert await rest.code("GET", f"/schemas/guids/{wrong}") == 40403


async def test_kinds_of_schemas_are_told(rest: Rest) -> None:
    assert set(await rest.ok("GET", "/schemas/types")) == {"AVRO", "JSON", "PROTOBUF"}


async def test_a_list_of_schemas_can_be_the_newest_only(rest: Rest) -> None:
    await rest.register("a", '"string"')
    await rest.register("a", '["string"]')
    await rest.register("b", '"string"')
    every = await rest.ok("GET", "/schemas")
    assert [(one["subject"], one["version"]) for one in every] == [("a", 1), ("a", 2), ("b", 1)]
    newest = await rest.ok("GET", "/schemas?latestOnly=true&subjectPrefix=a")
    assert [(one["subject"], one["version"]) for one in newest] == [("a", 2)]


async def test_every_path_exists_below_a_context(rest: Rest) -> None:
    await rest.register("s", '"string"')
    below = "/contexts/.lab"
    body = {"schema": '"int"'}
    assert (await rest.ok("POST", f"{below}/subjects/s/versions", body))["id"] == 1
    assert await rest.ok("GET", "/contexts") == [".", ".lab"]
    assert await rest.ok("GET", f"{below}/subjects") == [":.lab:s"]
    assert (await rest.ok("GET", f"{below}/schemas/ids/1"))["schema"] == '"int"'
    assert (await rest.ok("GET", "/schemas/ids/1"))["schema"] == '"string"'
    assert (await rest.ok("GET", "/schemas/ids/1?subject=:.lab:s"))["schema"] == '"int"'
    assert (await rest.ok("GET", f"{below}/subjects/s/versions/1"))["subject"] == ":.lab:s"
    assert await rest.ok("PUT", f"{below}/config", {"compatibility": "FULL"})
    assert await rest.ok("GET", "/config/:.lab:") == {"compatibilityLevel": "FULL"}
    assert await rest.ok("GET", "/config") == {"compatibilityLevel": "BACKWARD"}
    assert await rest.ok("GET", "/contexts/%3A.lab%3A/subjects") == [":.lab:s"]


async def test_an_id_is_looked_for_in_every_context_under_the_subjects_name(rest: Rest) -> None:
    await rest.register(":.lab:only", '"string"')
    found = await rest.ok("GET", "/schemas/ids/1?subject=only")
    assert found["subject"] == ":.lab:only"
    assert await rest.code("GET", "/schemas/ids/1?subject=other") == 40403
    assert await rest.code("GET", "/schemas/ids/1") == 40403
