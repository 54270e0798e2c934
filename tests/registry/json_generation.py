"""Random JSON Schemas of the kind the comparer understands fully, and documents that fit them.

Left out is what Confluent's rule does not look at (see ``compatibility.json_schema``): there a
verdict promises nothing about data.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

NAMES = ("a", "b", "c", "d")


class JsonGenerator:
    def __init__(self, random: Random) -> None:
        self._random = random

    def schema(self, depth: int = 2) -> Any:
        random = self._random
        kind = random.choice(["string", "integer", "number", "boolean", "null", "enum"])
        if depth and random.random() < 0.75:
            kind = random.choice(["object", "object", "object", "array", "tuple", "types", "anyOf"])
        if kind == "string":
            return self._limited({"type": "string"}, "minLength", "maxLength", 0, 3)
        if kind in ("integer", "number"):
            node = self._limited({"type": kind}, "minimum", "maximum", -3, 3)
            if random.random() < 0.2:
                node["multipleOf"] = random.choice([1, 2, 4])
            return node
        if kind == "enum":
            return {"enum": random.sample(["x", "y", 1, None], random.randint(1, 4))}
        if kind == "object":
            return self._object(depth)
        if kind == "array":
            return self._limited(
                {"type": "array", "items": self.schema(depth - 1)}, "minItems", "maxItems", 0, 2
            )
        if kind == "tuple":
            items = [self.schema(depth - 1) for _ in range(random.randint(1, 3))]
            return {"type": "array", "items": items, "additionalItems": random.random() < 0.3}
        if kind == "types":
            return {"type": random.sample(["string", "null", "integer"], random.randint(1, 3))}
        if kind == "anyOf":
            return {"anyOf": [self.schema(depth - 1) for _ in range(random.randint(1, 3))]}
        return {"type": kind}

    def _limited(self, node: Any, low: str, high: str, least: int, most: int) -> Any:
        bounds = sorted(self._random.randint(least, most) for _ in range(2))
        if self._random.random() < 0.3:
            node[low] = bounds[0]
        if self._random.random() < 0.3:
            node[high] = bounds[1]
        return node

    def _object(self, depth: int) -> Any:
        random = self._random
        names = random.sample(NAMES, random.randint(0, 3))
        properties = {name: self.schema(depth - 1) for name in names}
        node: dict[str, Any] = {"type": "object", "properties": properties}
        required = [name for name in names if random.random() < 0.4]
        if required:
            node["required"] = required
        more = random.choice([None, False, False, True, "schema"])
        if more is not None:
            node["additionalProperties"] = self.schema(0) if more == "schema" else more
        return node

    def changed(self, schema: Any) -> Any:
        """The schema with a change somewhere."""
        return self._change(json.loads(json.dumps(schema)))

    def _change(self, node: Any) -> Any:
        random = self._random
        if random.random() < 0.15:
            return self.schema(1)
        if "anyOf" in node:
            parts = node["anyOf"]
            if random.random() < 0.5:
                parts.append(self.schema(1))
            else:
                parts[0] = self._change(parts[0])
        elif isinstance(node.get("items"), dict):
            node["items"] = self._change(node["items"])
        elif "properties" in node:
            self._change_object(node)
        else:
            for limit in ("minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems"):
                if limit in node and random.random() < 0.7:
                    node[limit] = max(0, node[limit] + random.choice([-1, 1, 1]))
            if node.get("type") == "integer" and random.random() < 0.5:
                node["type"] = "number"
            if "enum" in node and random.random() < 0.7:
                node["enum"] = [*node["enum"], "z"]
        return node

    def _change_object(self, node: Any) -> None:
        random = self._random
        properties = node["properties"]
        choice = random.random()
        if choice < 0.3:
            properties[random.choice(NAMES)] = self.schema(1)
        elif choice < 0.5 and properties:
            name = random.choice(sorted(properties))
            del properties[name]
            required = [one for one in node.pop("required", []) if one != name]
            if required:
                node["required"] = required
        elif choice < 0.6:
            node["additionalProperties"] = random.random() < 0.5
        elif choice < 0.7:
            node.pop("required", None)
        elif properties:
            name = random.choice(sorted(properties))
            properties[name] = self._change(properties[name])

    def document(self, depth: int = 3) -> Any:
        """Any document; whether it fits a schema is up to the validator."""
        random = self._random
        kind = random.choice(["string", "number", "null", "true", "object", "array"][: 4 + depth])
        if kind == "string":
            return random.choice(["", "x", "y", "z", "xx", "xxx", "xxxx"])
        if kind == "number":
            return random.choice([-4, -1, 0, 1, 2, 3, 4, 1.5])
        if kind == "object":
            names = random.sample(NAMES, random.randint(0, 3))
            return {name: self.document(depth - 1) for name in names}
        if kind == "array":
            return [self.document(depth - 1) for _ in range(random.randint(0, 3))]
        return None if kind == "null" else True

    def fitting(self, schema: Any, depth: int = 3) -> Any:
        """A document that probably fits ``schema``."""
        random = self._random
        if schema is True or random.random() < 0.05:
            return self.document(depth)
        if "enum" in schema:
            return random.choice(schema["enum"])
        if "anyOf" in schema:
            return self.fitting(random.choice(schema["anyOf"]), depth)
        kind = schema.get("type")
        kind = random.choice(kind) if isinstance(kind, list) else kind
        if kind == "object":
            return self._fitting_object(schema, depth)
        if kind == "array":
            items = schema["items"]
            if isinstance(items, list):
                return [self.fitting(item, depth - 1) for item in items[: random.randint(0, 3)]]
            return [self.fitting(items, depth - 1) for _ in range(random.randint(0, 3))]
        if kind == "string":
            return "x" * random.randint(0, 4)
        if kind in ("integer", "number"):
            return random.choice([-4, -2, 0, 1, 2, 3, 4] + ([0.5] if kind == "number" else []))
        return None if kind == "null" else True

    def _fitting_object(self, schema: Any, depth: int) -> Any:
        random = self._random
        document = {
            name: self.fitting(inner, depth - 1)
            for name, inner in schema["properties"].items()
            if name in schema.get("required", ()) or random.random() < 0.6
        }
        more = schema.get("additionalProperties", True)
        if more is not False:
            for name in NAMES:
                if name not in schema["properties"] and random.random() < 0.3:
                    document[name] = self.fitting(more, depth - 1)
        return document
