"""Bounds on the work strangers can ask for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest

from onceward.registry.checking import Checker
from onceward.registry.errors import RegistryError
from onceward.registry.schemas import Limits, SchemaType
from onceward.registry.sources import Source

R = TypeVar("R")

STRING = Source(SchemaType.AVRO, '"string"')


class Gate:
    """Work waits here until ``opened``."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.begun = 0

    async def __call__(self, work: Callable[[], R]) -> R:
        self.begun += 1
        await self.opened.wait()
        return work()


def source(number: int) -> Source:
    return Source(SchemaType.AVRO, f'{{"type":"fixed","name":"F{number}","size":1}}')


async def parse(checker: Checker, number: int) -> str:
    return (await checker.parse(source(number), strict=True, normalize=False)).canonical


async def test_only_so_many_are_checked_at_once_and_only_so_many_wait() -> None:
    gate = Gate()
    checker = Checker(gate, Limits(), workers=2, max_waiting=1)
    tasks = [asyncio.create_task(parse(checker, number)) for number in range(3)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert gate.begun == 2
    with pytest.raises(RegistryError) as caught:
        await parse(checker, 4)
    assert caught.value.code == 429
    gate.opened.set()
    assert len(await asyncio.gather(*tasks)) == 3
    assert await parse(checker, 4)


async def test_work_that_takes_too_long_is_given_up_and_keeps_its_slot_until_it_ends() -> None:
    gate = Gate()
    checker = Checker(gate, Limits(), workers=1, time_limit_s=0.01)
    with pytest.raises(RegistryError) as caught:
        await parse(checker, 1)
    assert caught.value.code == 42209
    with pytest.raises(RegistryError) as caught:
        await parse(checker, 2)
    assert (caught.value.code, gate.begun) == (429, 1)
    gate.opened.set()
    await asyncio.sleep(0.01)
    assert await parse(checker, 3)


async def test_a_schema_is_parsed_once() -> None:
    gate = Gate()
    gate.opened.set()
    checker = Checker(gate, Limits())
    first = await checker.parse(STRING, strict=False, normalize=False)
    assert await checker.parse(STRING, strict=False, normalize=False) is first
    assert gate.begun == 1


async def test_one_who_goes_away_while_waiting_leaves_no_trace() -> None:
    gate = Gate()
    checker = Checker(gate, Limits(), workers=1, max_waiting=1)
    first = asyncio.create_task(parse(checker, 1))
    await asyncio.sleep(0)
    for number in range(2, 6):
        waiting = asyncio.create_task(parse(checker, number))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    gate.opened.set()
    assert await first and await parse(checker, 9)
