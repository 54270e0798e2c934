"""Random Avro schemas, changes to them, and data that fits them."""

from __future__ import annotations

import json
from random import Random
from typing import Any

NAMES = ("a", "b", "c", "d")
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


class AvroGenerator:
    """Schemas as JSON values. Named types have one of few names, so that two schemas often meet."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._defined: set[str] = set()

    def schema(self, depth: int = 3) -> Any:
        self._defined = set()
        return self._type(depth)

    def _type(self, depth: int, in_union: bool = False) -> Any:
        random = self._random
        kinds = ["primitive"] * 3
        if depth:
            kinds += ["array", "map", "record", "record", "enum", "fixed"]
            if not in_union:
                kinds += ["union", "union"]
        kind = random.choice(kinds)
        if kind == "primitive":
            return random.choice(PRIMITIVES)
        if kind == "array":
            return {"type": "array", "items": self._type(depth - 1)}
        if kind == "map":
            return {"type": "map", "values": self._type(depth - 1)}
        if kind == "union":
            return self._union(depth)
        name = f"{kind[0].upper()}{random.randint(1, 3)}"
        if name in self._defined:
            return name
        self._defined.add(name)
        if kind == "enum":
            symbols = random.sample(("X", "Y", "Z"), random.randint(1, 3))
            enum: dict[str, Any] = {"type": "enum", "name": name, "symbols": symbols}
            if random.random() < 0.3:
                enum["default"] = symbols[0]
            return enum
        if kind == "fixed":
            return {"type": "fixed", "name": name, "size": random.randint(1, 2)}
        return self._record(name, depth)

    def _record(self, name: str, depth: int) -> Any:
        random = self._random
        fields = []
        for field_name in random.sample(NAMES, random.randint(0, 3)):
            kind = self._type(depth - 1)
            field: dict[str, Any] = {"name": field_name, "type": kind}
            if random.random() < 0.15:
                field["aliases"] = [random.choice(NAMES)]
            if kind in ("int", "long") and random.random() < 0.5:
                field["default"] = 7
            fields.append(field)
        record: dict[str, Any] = {"type": "record", "name": name, "fields": fields}
        if random.random() < 0.2:
            record["aliases"] = [f"R{random.randint(1, 3)}"]
        return record

    def _union(self, depth: int) -> Any:
        branches: list[Any] = []
        seen: set[str] = set()
        for _ in range(self._random.randint(1, 3)):
            branch = self._type(depth - 1, in_union=True)
            name = branch if isinstance(branch, str) else branch.get("name", branch["type"])
            if name not in seen:
                seen.add(name)
                branches.append(branch)
        return branches

    def changed(self, schema: Any) -> Any:
        """The schema with one or two changes of the kind people make."""
        copy = json.loads(json.dumps(schema))
        for _ in range(self._random.randint(1, 2)):
            copy = self._change(copy)
        return copy

    def _change(self, node: Any) -> Any:
        random = self._random
        if isinstance(node, list):
            if node and random.random() < 0.6:
                index = random.randrange(len(node))
                node[index] = self._change(node[index])
            elif len(node) > 1:
                node.pop(random.randrange(len(node)))
            return node
        if isinstance(node, str):
            wider = {"int": "long", "long": "double", "float": "double", "string": "bytes"}
            return wider.get(node, node) if random.random() < 0.7 else random.choice(PRIMITIVES)
        if node["type"] in ("array", "map"):
            member = "items" if node["type"] == "array" else "values"
            node[member] = self._change(node[member])
        elif node["type"] == "record":
            self._change_fields(node["fields"])
        elif node["type"] == "enum":
            if random.random() < 0.5:
                node["symbols"] = sorted({*node["symbols"], "W"})
            elif len(node["symbols"]) > 1:
                node["symbols"].pop()
                node.pop("default", None)
        return node

    def _change_fields(self, fields: list[Any]) -> None:
        random = self._random
        choice = random.random()
        names = {field["name"] for field in fields}
        if choice < 0.3:
            new: dict[str, Any] = {"name": random.choice(NAMES), "type": "long"}
            if random.random() < 0.7:
                new["default"] = 3
            if new["name"] not in names:
                fields.insert(random.randint(0, len(fields)), new)
        elif choice < 0.5 and fields:
            fields.pop(random.randrange(len(fields)))
        elif choice < 0.6:
            random.shuffle(fields)
        elif fields:
            field = random.choice(fields)
            field.pop("default", None)
            field["type"] = self._change(field["type"])
