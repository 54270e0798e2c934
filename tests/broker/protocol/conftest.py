"""Random but reproducible values for any declared message and version."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from onceward.broker.protocol.api import APIS
from onceward.broker.protocol.fields import Field, Kind, schema_of, struct_type

MessageVersion = tuple[type[Any], int]
BITS = {Kind.INT8: 8, Kind.INT16: 16, Kind.INT32: 32, Kind.INT64: 64}
TEXTS = ["", "a", "orders-eu", "naïve 数据 🎉", "x" * 126, "y" * 127, "z" * 300]


class Generator:
    """``big`` mixes in values around the limits of lengths and counts."""

    def __init__(self, seed: object, *, big: bool) -> None:
        self._rng = random.Random(str(seed))
        self._big = big

    def message(self, cls: type[Any], version: int) -> Any:
        values = {
            field.name: self._value(cls, field, version)
            for field in schema_of(cls).fields
            if version in field.versions and not (field.tag is not None and self._one_in(2))
        }
        return cls(**values)

    def _one_in(self, n: int) -> bool:
        return self._rng.randrange(n) == 0

    def _value(self, cls: type[Any], field: Field, version: int) -> Any:
        if version in field.nullable and self._one_in(4):
            return None
        if not field.is_array:
            return self._scalar(cls, field, version)
        count = self._rng.choice([0, 1, 2])
        if self._big and field.kind is not Kind.STRUCT and self._one_in(4):
            count = self._rng.choice([126, 127, 128, 200])
        return [self._scalar(cls, field, version) for _ in range(count)]

    def _scalar(self, cls: type[Any], field: Field, version: int) -> Any:
        rng = self._rng
        if field.kind is Kind.STRUCT:
            return self.message(struct_type(cls, field), version)
        if field.kind is Kind.BOOLEAN:
            return rng.random() < 0.5
        if field.kind is Kind.STRING:
            return rng.choice(TEXTS if self._big else TEXTS[:4])
        if field.kind is Kind.UUID:
            return rng.randbytes(16)
        if field.kind in (Kind.BYTES, Kind.RECORDS):
            return rng.randbytes(rng.choice([0, 1, 126, 127, 2000] if self._big else [0, 3]))
        if field.kind is Kind.UINT16:
            return rng.choice([0, 1, 2**15, 2**16 - 1])
        limit = 2 ** (BITS[field.kind] - 1)
        return rng.choice([-limit, -1, 0, 1, limit - 1, rng.randrange(-limit, limit)])


@pytest.fixture(scope="session")
def generate() -> Callable[..., Any]:
    def make(cls: type[Any], version: int, *, seed: object = 0, big: bool = False) -> Any:
        key = (cls.__qualname__, version, seed)
        return Generator(key, big=big).message(cls, version)

    return make


@pytest.fixture(scope="session")
def every_message() -> list[MessageVersion]:
    """Each top-level class with each version the codec has."""
    return [
        (cls, version)
        for api in APIS.values()
        for cls in (api.request, api.response)
        for version in range(api.min_version, api.max_version + 1)
    ]
