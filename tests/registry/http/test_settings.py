"""``/config``, ``/mode``, ``/compatibility``, and what a client asks of a server as a whole."""

from __future__ import annotations

import pytest

from .rest import Rest

R1 = '{"type":"record","name":"R","fields":[]}'
R2 = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'


async def test_the_level_has_two_names(rest: Rest) -> None:
    assert await rest.ok("GET", "/config") == {"compatibilityLevel": "BACKWARD"}
    body = {"compatibility": "full_transitive"}
    assert await rest.ok("PUT", "/config", body) == {"compatibility": "FULL_TRANSITIVE"}
    assert await rest.ok("GET", "/config") == {"compatibilityLevel": "FULL_TRANSITIVE"}
    assert await rest.ok("DELETE", "/config") == {"compatibilityLevel": "FULL_TRANSITIVE"}
    assert await rest.ok("GET", "/config") == {"compatibilityLevel": "BACKWARD"}


async def test_a_subject_without_config_of_its_own_says_so(rest: Rest) -> None:
    assert await rest.code("GET", "/config/s") == 40408
    assert await rest.code("DELETE", "/config/s") == 40401
    assert await rest.ok("GET", "/config/s?defaultToGlobal=true") == {
        "compatibilityLevel": "BACKWARD"
    }
    await rest.ok("PUT", "/config/s", {"compatibility": "NONE", "normalize": True})
    assert await rest.ok("GET", "/config/s") == {"compatibilityLevel": "NONE", "normalize": True}
    await rest.ok("PUT", "/config/s", {"normalize": None})
    assert await rest.ok("DELETE", "/config/s") == {"compatibilityLevel": "NONE"}
    assert await rest.code("DELETE", "/config/s") == 40401


@pytest.mark.parametrize("body", [{"compatibility": "SOME"}, {}, {"compatibility": 1}])
async def test_a_level_that_is_none_is_refused(rest: Rest, body: object) -> None:
    assert await rest.code("PUT", "/config", body) == 42203


async def test_settings_that_would_have_no_effect_are_refused(rest: Rest) -> None:
    assert await rest.code("PUT", "/config/s", {"validateFields": True}) == 42205


async def test_modes(rest: Rest) -> None:
    assert await rest.ok("GET", "/mode") == {"mode": "READWRITE"}
    assert await rest.code("GET", "/mode/s") == 40409
    assert await rest.code("DELETE", "/mode/s") == 40401
    assert await rest.ok("PUT", "/mode", {"mode": "readonly"}) == {"mode": "READONLY"}
    assert await rest.ok("GET", "/mode/s?defaultToGlobal=true") == {"mode": "READONLY"}
    assert await rest.code("POST", "/subjects/s/versions", {"schema": '"int"'}) == 42205
    for wrong in ("FORWARD", "READONLY_OVERRIDE", "", None):
        assert await rest.code("PUT", "/mode", {"mode": wrong}) == 42204
    assert await rest.ok("PUT", "/mode/s", {"mode": "IMPORT"}) == {"mode": "IMPORT"}
    answer = await rest.register("s", '"int"', id=5, version=2)
    assert (answer["id"], answer["version"]) == (5, 2)
    assert await rest.ok("DELETE", "/mode?recursive=true") == {"mode": "READONLY"}
    assert await rest.code("GET", "/mode/s") == 40409


async def test_a_check_says_why_only_when_asked(rest: Rest) -> None:
    await rest.register("s", R1)
    path, body = "/compatibility/subjects/s/versions", {"schema": R2}
    for place in (f"{path}/latest", f"{path}/1", path):
        assert await rest.ok("POST", place, body) == {"is_compatible": False}
        answer = await rest.ok("POST", f"{place}?verbose=true", body)
        assert answer["is_compatible"] is False
        assert "READER_FIELD_MISSING_DEFAULT_VALUE" in answer["messages"][0]
        assert "/fields/0" in answer["messages"][0]
    assert await rest.ok("POST", f"{path}/latest?verbose=true", {"schema": R1}) == {
        "is_compatible": True,
        "messages": [],
    }


async def test_a_check_against_nothing_is_passed(rest: Rest) -> None:
    """https://github.com/Apicurio/apicurio-registry/issues/6089"""
    path, body = "/compatibility/subjects/new/versions", {"schema": R1}
    assert await rest.ok("POST", f"{path}/latest", body) == {"is_compatible": True}
    assert await rest.ok("POST", path, body) == {"is_compatible": True}
    assert await rest.code("POST", f"{path}/1", body) == 40402
    assert await rest.code("POST", f"{path}/latest", {"schema": "{"}) == 42201


async def test_what_clients_ask_of_a_server(rest: Rest) -> None:
    assert await rest.ok("GET", "/") == {}
    path = "/associations/resources/-/orders?resourceType=topic&associationType=value"
    assert await rest.ok("GET", path) == []
    assert (await rest.ok("GET", "/v1/metadata/id")).keys() == {"id", "scope"}
    assert (await rest.ok("GET", "/v1/metadata/version")).keys() == {"version", "commitId"}


async def test_the_openapi_document_has_every_path(rest: Rest) -> None:
    document = (await rest.client.get("/openapi.json")).json()
    assert document["openapi"].startswith("3.1")
    assert document["paths"]["/subjects/{subject}/versions"].keys() == {"get", "post"}
    ids = [one["operationId"] for path in document["paths"].values() for one in path.values()]
    assert len(ids) == len(set(ids))
