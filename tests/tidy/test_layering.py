"""Which layer may import which: the table is the architecture, an edge is added here or nowhere."""

from __future__ import annotations

import pytest

from .source import Module, modules

# layer -> the layers of ours it may import besides itself. The most specific prefix of a module's
# name decides its layer.
LEAVES = {"broker.errors", "broker.types"}
ALLOWED: dict[str, set[str]] = {
    "broker.errors": set(),
    "broker.types": set(),
    "broker.protocol": {*LEAVES},
    "broker.records": {*LEAVES},
    "broker.storage": {*LEAVES, "broker.records"},
    "broker.log": {*LEAVES, "broker.records", "broker.storage"},
    "broker.coordinator": {*LEAVES, "broker.protocol"},
    "broker.server": {*LEAVES, "broker.protocol"},
    "broker.handlers": {
        *LEAVES,
        "broker.protocol",
        "broker.records",
        "broker.log",
        "broker.coordinator",
        "broker.server",
        "broker.metadata",
        "broker.topics",
        "broker.config",
    },
    "broker.config": {*LEAVES, "broker.log", "broker.coordinator", "broker.unused_configs"},
    "broker.unused_configs": set(),
    "broker.metadata": {*LEAVES, "broker.storage", "broker.log", "broker.config"},
    "broker.client": {*LEAVES, "broker.protocol", "broker.records"},
    # what exists on this node: metadata and logs changed together
    "broker.topics": {*LEAVES, "broker.config", "broker.metadata", "broker.log"},
    # composition: these construct across layers, or adapt one layer to the port of another
    "broker.broker": {"broker"},
    "broker.coordinator_log": {"broker"},
    "broker.serve": {"broker.broker"},
    "broker.__main__": {"broker"},
    "broker": {"broker.broker", *LEAVES},
    "streams": {"broker.client", "streams.engine.worker"},
    # composition root of a worker process; ``app.main()`` hands over to the command line
    "streams.engine.worker": {"broker.client", "streams"},
    "streams.testing": {"broker.client", "broker.broker", "broker", "registry", "streams"},
    # the simulated machine knows the two ports it implements, and nothing that runs on it
    "streams.testing.sim": {*LEAVES, "broker.storage", "streams.state", "streams.engine.slots"},
    "streams.cli": {"broker.client", "broker.broker", "broker", "registry", "streams"},
    # texts in, verdicts out: what a schema is, and who can read whose data
    "registry.schemas": set(),
    "registry.compatibility": {"registry.schemas"},
    # in the program that reads and writes records: knows a registry by its client only
    "registry.exchange": set(),
    "registry.client": {"registry.errors", "registry.exchange", "registry.schemas"},
    "registry.serializers": {
        "registry.client",
        "registry.compatibility",
        "registry.errors",
        "registry.schemas",
    },
    "registry": {
        "broker.client",
        "registry.client",
        "registry.exchange",
        "registry.compatibility",
        "registry.schemas",
        "registry.serializers",
    },
}

PURE = (
    "broker.protocol",
    "broker.records",
    "broker.log",
    "broker.coordinator.result",
    "broker.coordinator.group.group_shard",
    "broker.coordinator.group.classic_group",
    "broker.coordinator.group.offsets",
    "broker.coordinator.group.records",
    "broker.coordinator.transaction.transaction_shard",
    "broker.coordinator.transaction.transaction_metadata",
    "broker.coordinator.transaction.records",
    "broker.client.group",
    "streams.engine.partition_group",
    "streams.engine.assignor",
    "streams.engine.kernel",
    "streams.engine.pure",
    "streams.state.transaction",
    "streams.sinks.changes",
    "streams.sinks.effects",
    "streams.sinks.fault",
    "streams.sinks.files_format",
    "streams.sinks.files_manifest",
    "streams.sinks.files_rows",
    "streams.sinks.http_answer",
    "streams.sinks.mysql_positions",
    "streams.sinks.names",
    "streams.sinks.positions",
    "streams.sinks.redis_changes",
    "streams.sinks.redis_script",
    "streams.sinks.rows",
    "streams.sinks.table",
    "streams.sources.encoding",
    "streams.sources.models",
    "streams.sources.rows",
    "registry.schemas",
    "registry.compatibility",
    "registry.contracts",
    "registry.entities",
    "registry.errors",
    "registry.leadership",
    "registry.records",
    "registry.schema_registry",
    "registry.settings",
    "registry.sources",
    "registry.state",
    "registry.subjects",
    "registry.serializers.subjects",
    "registry.serializers.wire",
)
IMPURE_MODULES = {"asyncio", "time", "random", "os", "socket", "threading", "uuid", "secrets"}


def layer_of(name: str, layers: dict[str, set[str]]) -> str:
    """The most specific entry that ``name`` lies under."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        prefix = ".".join(parts[:length])
        if prefix in layers:
            return prefix
    raise KeyError(f"{name} has no layer: add it to ALLOWED and say why")


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.name)
def test_a_module_imports_only_what_its_layer_may(module: Module) -> None:
    layer = layer_of(module.name, ALLOWED)
    wrong = []
    for target, line in module.imports():
        if not target.startswith("onceward."):
            assert target.split(".")[0] not in {"broker", "streams", "registry"}, (
                f"{module.path}:{line}: imports {target}, a second copy of our modules; "
                "use a relative import"
            )
            continue
        name = target.removeprefix("onceward.")
        known = layer_of(name, ALLOWED)
        if known != layer and not _covered(known, name, ALLOWED[layer]):
            wrong.append(f"{module.path}:{line}: {layer} may not import {name}")
    assert not wrong, "\n".join(wrong)


def _covered(layer: str, name: str, allowed: set[str]) -> bool:
    if "broker" in allowed and name.split(".")[0] == "broker":
        return True
    if "streams" in allowed and name.split(".")[0] == "streams":
        return True
    return any(layer == entry or name.startswith(f"{entry}.") for entry in allowed)


@pytest.mark.parametrize("prefix", PURE)
def test_pure_layers_touch_no_clock_randomness_disk_network_or_loop(prefix: str) -> None:
    wrong = [
        f"{module.path}:{line}: {prefix} is pure but imports {target}"
        for module in modules()
        if module.name == prefix or module.name.startswith(f"{prefix}.")
        for target, line in module.runtime_imports()
        if target.split(".")[0] in IMPURE_MODULES
    ]
    assert not wrong, "\n".join(wrong)


def test_the_table_has_no_stale_layers() -> None:
    names = {module.name for module in modules()}
    stale = [
        layer
        for layer in (*ALLOWED, *PURE)
        if not any(name == layer or name.startswith(f"{layer}.") for name in names)
    ]
    assert not stale
