"""What the config of a subject does to its schemas: aliases, metadata and rules by default."""

from __future__ import annotations

from typing import Any

from .rest import Rest

INT, LONG, RECORD = '"int"', '"long"', '{"type":"record","name":"R","fields":[]}'
RULE: dict[str, Any] = {"mode": "WRITE", "type": "CEL", "disabled": False}
UPPER: dict[str, Any] = {"name": "upper", "kind": "TRANSFORM", **RULE}
CHECK: dict[str, Any] = {"name": "check", "kind": "CONDITION", **RULE}


async def latest(rest: Rest, subject: str) -> Any:
    return await rest.ok("GET", f"/subjects/{subject}/versions/latest")


async def test_requests_about_an_alias_are_for_the_subject_behind_it(rest: Rest) -> None:
    schema_id = (await rest.register("orders-v1", INT))["id"]
    echoed = await rest.ok("PUT", "/config/orders", {"alias": "orders-v1"})
    assert echoed == {"alias": "orders-v1"}
    assert await rest.ok("GET", "/config/orders") == {
        "compatibilityLevel": "BACKWARD",
        "alias": "orders-v1",
    }
    assert (await latest(rest, "orders"))["subject"] == "orders-v1"
    assert await rest.ok("GET", "/subjects/orders/versions") == [1]
    assert (await rest.ok("POST", "/subjects/orders", {"schema": INT}))["version"] == 1
    answer = await rest.ok("GET", f"/schemas/ids/{schema_id}?subject=orders")
    assert (answer["subject"], answer["version"]) == ("orders-v1", 1)
    assert (await rest.register("orders", LONG))["version"] == 2
    path = "/compatibility/subjects/orders/versions/latest"
    assert await rest.ok("POST", path, {"schema": RECORD}) == {"is_compatible": False}
    assert await rest.ok("GET", "/subjects") == ["orders-v1"]
    assert await rest.ok("DELETE", "/subjects/orders/versions/1") == 1
    assert await rest.ok("GET", "/subjects/orders-v1/versions") == [2]


async def test_an_alias_is_not_inherited_nor_followed_twice(rest: Rest) -> None:
    await rest.register("c", INT)
    await rest.ok("PUT", "/config/a", {"alias": "b"})
    await rest.ok("PUT", "/config/b", {"alias": "c"})
    assert await rest.code("GET", "/subjects/a/versions") == 40401
    assert await rest.ok("GET", "/subjects/b/versions") == [1]
    await rest.ok("PUT", "/config", {"alias": "c"})
    assert await rest.code("GET", "/subjects/other/versions") == 40401
    await rest.register("z", INT)
    assert "subject" not in await rest.ok("GET", "/schemas/ids/1")
    assert await rest.ok("GET", "/schemas/ids/1/subjects") == ["c", "z"]
    assert "alias" not in await rest.ok("GET", "/config/other?defaultToGlobal=true")
    await rest.ok("PUT", "/config/b", {"alias": ""})
    assert await rest.code("GET", "/subjects/b/versions") == 40401


async def test_an_alias_in_a_context_is_of_that_context(rest: Rest) -> None:
    await rest.register(":.lab:orders-v1", INT)
    await rest.ok("PUT", "/config/:.lab:orders", {"alias": "orders-v1"})
    assert (await latest(rest, ":.lab:orders"))["subject"] == ":.lab:orders-v1"
    assert await rest.ok("GET", "/contexts/lab/subjects/orders/versions") == [1]


async def test_a_list_of_schemas_can_say_their_aliases(rest: Rest) -> None:
    await rest.register("orders-v1", INT)
    await rest.register("other", LONG)
    await rest.ok("PUT", "/config/public", {"alias": "orders-v1"})
    [found] = await rest.ok("GET", "/schemas?subjectPrefix=public&aliases=true")
    assert (found["subject"], found["aliases"]) == ("orders-v1", ["public"])
    assert await rest.ok("GET", "/schemas?subjectPrefix=public") == []
    assert all("aliases" not in one for one in await rest.ok("GET", "/schemas"))


async def test_an_alias_that_is_no_subject_is_refused(rest: Rest) -> None:
    assert await rest.code("PUT", "/config/a", {"alias": "\x01"}) == 42208
    assert await rest.code("PUT", "/config/a", {"alias": 5}) == 42205


async def test_metadata_of_the_config_goes_below_and_above_that_of_the_schema(rest: Rest) -> None:
    config = {
        "defaultMetadata": {"properties": {"owner": "nobody", "team": "x"}, "tags": {"a": ["PII"]}},
        "overrideMetadata": {"properties": {"team": "y"}, "sensitive": ["b", "a"]},
    }
    stored = {**config, "overrideMetadata": {"properties": {"team": "y"}, "sensitive": ["a", "b"]}}
    stored["defaultMetadata"] = {
        "tags": {"a": ["PII"]},
        "properties": {"owner": "nobody", "team": "x"},
    }
    assert await rest.ok("PUT", "/config/s", config) == stored
    assert await rest.ok("GET", "/config/s") == {"compatibilityLevel": "BACKWARD", **stored}
    await rest.register("s", INT, metadata={"properties": {"owner": "ann", "team": "z"}})
    assert (await latest(rest, "s"))["metadata"] == {
        "tags": {"a": ["PII"]},
        "properties": {"owner": "ann", "team": "y"},
        "sensitive": ["a", "b"],
    }


async def test_rules_of_the_config_replace_those_of_the_same_name(rest: Rest) -> None:
    other = {**UPPER, "expr": "x"}
    config = {
        "defaultRuleSet": {"domainRules": [UPPER, CHECK]},
        "overrideRuleSet": {"domainRules": [{**CHECK, "disabled": True}]},
    }
    assert await rest.ok("PUT", "/config/s", config) == config
    await rest.register("s", INT, ruleSet={"domainRules": [other]})
    rules = (await latest(rest, "s"))["ruleSet"]["domainRules"]
    assert rules == [other, {**CHECK, "disabled": True}]
    bad = {"defaultRuleSet": {"domainRules": [{"name": "a b", "type": "CEL"}]}}
    assert await rest.code("PUT", "/config/s", bad) == 42210
    nothing = {"overrideRuleSet": None, "defaultRuleSet": None}
    assert await rest.ok("PUT", "/config/s", nothing) == {}
    assert await rest.ok("GET", "/config/s") == {"compatibilityLevel": "BACKWARD"}


async def test_the_same_schema_under_new_defaults_is_a_new_version(rest: Rest) -> None:
    first = await rest.register("s", INT)
    await rest.ok("PUT", "/config/s", {"defaultMetadata": {"properties": {"owner": "ann"}}})
    second = await rest.register("s", INT)
    assert (first["version"], second["version"]) == (1, 2)
    assert first["id"] != second["id"]
    assert (await rest.register("s", INT))["version"] == 2


async def test_metadata_and_rules_are_those_of_the_newest_version_unless_given(rest: Rest) -> None:
    metadata = {"properties": {"owner": "ann"}}
    await rest.register("s", INT, metadata=metadata, ruleSet={"domainRules": [UPPER]})
    assert (await rest.register("s", INT))["version"] == 1
    assert (await rest.ok("POST", "/subjects/s", {"schema": INT}))["version"] == 1
    answer = await rest.register("s", LONG)
    second = await latest(rest, "s")
    members = {"id", "version", "guid", "schemaType", "metadata", "ruleSet", "schema"}
    assert answer == {name: second[name] for name in members}
    assert (second["version"], second["metadata"]) == (2, metadata)
    assert second["ruleSet"] == {"domainRules": [UPPER]}
    await rest.register("s", LONG, metadata={}, ruleSet={})
    third = await latest(rest, "s")
    assert (third["version"], third["metadata"], third["ruleSet"]) == (3, {}, {})


async def test_the_version_in_the_metadata_is_that_of_the_schema(rest: Rest) -> None:
    own = {"properties": {"confluent:version": "1", "owner": "ann"}}
    await rest.register("s", INT, metadata=own)
    await rest.register("s", LONG)
    properties = (await latest(rest, "s"))["metadata"]["properties"]
    assert properties == {"confluent:version": "2", "owner": "ann"}
    assert (await rest.register("s", LONG))["version"] == 2
    assert (await rest.register("s", LONG, metadata={"properties": {"owner": "ann"}}))[
        "version"
    ] == 2


async def test_an_import_takes_the_schema_as_it_is(rest: Rest) -> None:
    await rest.ok("PUT", "/config/s", {"defaultMetadata": {"properties": {"owner": "ann"}}})
    await rest.ok("PUT", "/mode/s", {"mode": "IMPORT"})
    await rest.register("s", INT, id=7, version=3)
    assert "metadata" not in await latest(rest, "s")


async def test_the_group_a_schema_inherits_decides_what_it_is_compared_with(rest: Rest) -> None:
    await rest.ok("PUT", "/config/s", {"compatibilityGroup": "major"})
    await rest.register("s", INT, metadata={"properties": {"major": "1"}})
    assert await rest.code("POST", "/subjects/s/versions", {"schema": RECORD}) == 40901
    await rest.register("s", RECORD, metadata={"properties": {"major": "2"}})
    path = "/compatibility/subjects/s/versions"
    assert await rest.ok("POST", path, {"schema": LONG}) == {"is_compatible": False}
    body = {"schema": LONG, "metadata": {"properties": {"major": "1"}}}
    assert await rest.ok("POST", path, body) == {"is_compatible": True}


async def test_one_rule_set_has_one_spelling(rest: Rest) -> None:
    """What a client leaves out and what another sends empty is the same, as for Confluent."""
    spelled = {**UPPER, "doc": "", "tags": [], "params": {}, "expr": None, "later": 1}
    short = {"name": "upper", "mode": "WRITE", "type": "CEL"}
    first = await rest.register("s", INT, ruleSet={"domainRules": [UPPER]})
    for rule in (spelled, short):
        rules = {"migrationRules": [], "domainRules": [rule], "encodingRules": None}
        again = await rest.register("s", INT, ruleSet=rules)
        assert (again["id"], again["version"]) == (first["id"], 1)
        body = {"schema": INT, "ruleSet": rules}
        assert (await rest.ok("POST", "/subjects/s", body))["version"] == 1
    tagged = {**short, "tags": ["b", "a", "b"], "params": {"y": "1", "x": "2"}}
    await rest.register("s", INT, ruleSet={"domainRules": [tagged]})
    [rule] = (await latest(rest, "s"))["ruleSet"]["domainRules"]
    assert rule == {**UPPER, "tags": ["a", "b"], "params": {"x": "2", "y": "1"}}
    assert list(rule["params"]) == ["x", "y"]
