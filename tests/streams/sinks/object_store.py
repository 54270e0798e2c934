"""An object store in memory, whose requests fail, hang or get lost where a test says."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

from onceward.streams.sinks import SinkUnavailable
from onceward.streams.sinks.files_store import ObjectStore, Stored


class Bucket:
    """What is stored, and what must hold of it at every moment."""

    def __init__(self) -> None:
        self.objects: dict[str, Stored] = {}

    def write(self, key: str, data: bytes) -> str:
        is_read = not is_hidden(key)
        if is_read and key in self.objects:
            assert self.objects[key].data == data, f"{key} changes"
        self.objects[key] = Stored(data, f'"{hashlib.md5(data).hexdigest()}"')
        if is_read and key.endswith(".jsonl"):
            ids = self.ids()
            assert len(set(ids)) == len(ids), f"{key} repeats rows"
        return self.objects[key].tag

    def files(self) -> dict[str, str]:
        """What a reader sees who lists the objects."""
        return {
            key: stored.data.decode()
            for key, stored in sorted(self.objects.items())
            if not is_hidden(key)
        }

    def rows(self) -> list[Any]:
        return [json.loads(line) for text in self.files().values() for line in text.splitlines()]

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in self.rows())

    def unread(self) -> list[str]:
        return [key for key in self.objects if key.endswith(".data")]


def is_hidden(key: str) -> bool:
    return any(part.startswith("_") for part in key.split("/"))


class MemoryStore(ObjectStore):
    """One worker's way to a bucket. Request number ``at`` (from 0) ends otherwise.

    ``how``: ``before`` fails and is not done; ``after`` is done, and fails; ``late`` hangs until
    ``resume`` is set and is done then; ``stuck`` is done, and its answer comes then.
    """

    def __init__(self, bucket: Bucket, at: int = -1, how: str = "before") -> None:
        self.bucket = bucket
        self.at, self.how = at, how
        self.requests = 0
        self.is_stopped = asyncio.Event()
        self.resume = asyncio.Event()

    async def _begin(self) -> str:
        await asyncio.sleep(0)
        number, self.requests = self.requests, self.requests + 1
        how = self.how if number == self.at else ""
        if how == "before":
            raise SinkUnavailable(f"{self.explain}: no route")
        if how == "late":
            await self._hang()
        return how

    async def _end(self, how: str) -> None:
        await asyncio.sleep(0)
        if how == "after":
            raise SinkUnavailable(f"{self.explain}: no answer")
        if how == "stuck":
            await self._hang()

    async def _hang(self) -> None:
        self.is_stopped.set()
        await self.resume.wait()

    async def get(self, key: str) -> Stored | None:
        how = await self._begin()
        found = self.bucket.objects.get(key)
        await self._end(how)
        return found

    async def put(self, key: str, data: bytes) -> None:
        how = await self._begin()
        self.bucket.write(key, data)
        await self._end(how)

    async def put_if(self, key: str, data: bytes, tag: str | None) -> str | None:
        how = await self._begin()
        found = self.bucket.objects.get(key)
        made = None
        if (None if found is None else found.tag) == tag:
            made = self.bucket.write(key, data)
        await self._end(how)
        return made

    async def copy(self, key: str, to: str) -> bool:
        how = await self._begin()
        found = self.bucket.objects.get(key)
        if found is not None:
            self.bucket.write(to, found.data)
        await self._end(how)
        return found is not None

    async def exists(self, key: str) -> bool:
        how = await self._begin()
        is_there = key in self.bucket.objects
        await self._end(how)
        return is_there

    async def delete(self, key: str) -> None:
        how = await self._begin()
        self.bucket.objects.pop(key, None)
        await self._end(how)

    async def keys(self, prefix: str) -> list[str]:
        how = await self._begin()
        found = [key for key in self.bucket.objects if key.startswith(prefix)]
        await self._end(how)
        return found
