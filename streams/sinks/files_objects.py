"""Files in an object store: every row in exactly one object that can be listed, whatever crashes.

A store has no rename and no transaction over several objects, and one commit may have many: one per
input partition and directory. What it has is a write that happens only if an object is as it was
read. So there is one small object, the manifest, at ``_onceward/{app}/{sink}/positions``, that says
what is committed (see ``files_manifest``), and a commit has four steps:

1. The files are written below ``_onceward``, under names that no other attempt has: they hold the
   partition, the owner's epoch and a number.
2. The manifest is replaced, if it is the one that was read: it moves the positions and names those
   objects. This one request decides. When it is not the same any more, another worker committed or
   took over; it is read again, and either the claim is still good, or this worker is fenced.
3. The objects are copied to where they are read, by the store itself. The copy is of the same
   content and to the same name whoever makes it.
4. They are deleted, and the next change of the manifest forgets them.

Whoever takes a partition over raises its epoch in the manifest (from here on nothing the former
owner has in hand can be committed, not even a request that is still on its way), then makes 3 and 4
for what is committed, and deletes what never will be: objects of a lower epoch that the manifest
does not name. So it lists only what was in hand when workers died.

Writing the objects at once under names made of their first offset would save the copy, but who runs
the records again may cut them elsewhere; and a list would show rows before they are committed. A
log of commits instead of one manifest would have to be kept for ever, as a worker that sleeps must
not find the number of its next entry free.

Workers of one sink commit one after the other, some tens of milliseconds each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote

from onceward.broker.client import TopicPartition

from .effects import Batch
from .errors import SinkError, SinkFenced, SinkTimeout
from .files_manifest import Manifest
from .files_rows import HIDDEN, NewFile
from .files_store import ObjectStore, Stored
from .positions import Advance, Claim, Position, Start

T = TypeVar("T")
_EPOCH_DIGITS: Final = 20


class _Hidden(NamedTuple):
    """Whose an object below ``_onceward`` is, from its key."""

    tp: TopicPartition
    epoch: int

    @classmethod
    def of(cls, key: str) -> _Hidden:
        topic, number, name = key.rsplit("/", 3)[1:]
        return cls(TopicPartition(topic, int(number)), int(name.partition("-")[0]))


class Additions:
    """The files of one commit."""

    def __init__(self) -> None:
        self.files: list[NewFile] = []

    def add(self, app: str, file: NewFile) -> None:
        self.files.append(file)


class ObjectFiles:
    """``prefix``: of all keys. ``rows_of`` adds the files of a batch to its ``connection``, in
    another thread. The rest is as ``FilesSink`` has it."""

    def __init__(
        self,
        name: str,
        description: str,
        prefix: str,
        store: ObjectStore,
        rows_of: Callable[[Batch], object],
        *,
        timeout: float,
    ) -> None:
        self.store = store
        store.explain = description
        self._name = name
        self._description = description
        self._prefix = f"{prefix}/" if prefix else ""
        self._rows_of = rows_of
        self._timeout = timeout
        self._users = 0
        self._is_checked = False
        self._attempts = 0
        self._current: Stored | None = None
        self._is_current = False
        self._moved: set[str] = set()

    async def start(self) -> None:
        self._users += 1
        await self._bounded(self._check())

    async def close(self) -> None:
        self._users = max(0, self._users - 1)
        if self._users == 0:
            await self._bounded(self.store.close())

    async def take_over(
        self, app: str, starts: Mapping[TopicPartition, Start]
    ) -> dict[TopicPartition, Claim]:
        return await self._bounded(self._take_over(app, starts))

    async def positions(self, app: str) -> dict[TopicPartition, Position]:
        try:
            found = await self._bounded(self.store.get(self._manifest_key(app)))
        finally:
            if self._users == 0:
                await self.store.close()
        if found is None:
            raise SinkError(f"{self._description}: nothing was written there yet")
        return self._decoded(app, found).positions()

    async def commit(self, batch: Batch, advances: Sequence[Advance]) -> None:
        await self._bounded(self._commit(batch, advances))

    async def _take_over(
        self, app: str, starts: Mapping[TopicPartition, Start]
    ) -> dict[TopicPartition, Claim]:
        await self._check()
        pending: dict[str, str] = {}

        def take(manifest: Manifest) -> dict[TopicPartition, Claim]:
            nonlocal pending
            pending = manifest.pending
            return manifest.take_over(starts)

        self._is_current = False
        claims = await self._change(app, take)
        await self._publish(
            {key: to for key, to in pending.items() if _Hidden.of(key).tp in claims}
        )
        left = [
            key
            for key in await self.store.keys(f"{self._owned(app)}data/")
            if key not in pending and _is_outdated(_Hidden.of(key), claims)
        ]
        await _together(self.store.delete(key) for key in left)
        return claims

    async def _commit(self, batch: Batch, advances: Sequence[Advance]) -> None:
        await self._check()
        additions = Additions()
        batch.connection = additions
        await asyncio.to_thread(self._rows_of, batch)
        files = await self._upload(batch.app, additions.files, advances)
        refused = [(batch.ids()[index], reason) for index, reason in batch.refused]
        tries = 0

        def commit(manifest: Manifest) -> None:
            nonlocal tries
            tries += 1
            if tries > 1 and manifest.has(advances) and files.keys() <= manifest.pending.keys():
                return  # it was done, and the answer lost
            lost = manifest.lost(advances)
            if lost is not None:
                raise SinkFenced(f"{self._description}: {lost} belongs to another worker now")
            manifest.advance(advances, refused)
            manifest.pending.update(files)

        await self._change(batch.app, commit)
        await self._publish(files)

    async def _upload(
        self, app: str, files: Sequence[NewFile], advances: Sequence[Advance]
    ) -> dict[str, str]:
        """Where the files are now, and where they are to be read."""
        epochs = {advance.tp: advance.epoch for advance in advances}
        self._attempts += 1
        keys = [
            f"{self._owned(app)}data/{file.tp.topic}/{file.tp.partition}/"
            f"{epochs[file.tp]:0{_EPOCH_DIGITS}}-{self._attempts}-{number}.data"
            for number, file in enumerate(files)
        ]
        writing = [self.store.put(key, file.data) for key, file in zip(keys, files, strict=True)]
        naming = [self._free_name(app, file) for file in files]
        done: list[Any] = await _together([*writing, *naming])
        return dict(zip(keys, done[len(files) :], strict=True))

    async def _free_name(self, app: str, file: NewFile) -> str:
        for name in file.names(app, self._name):
            key = self._prefix + name
            if not await self.store.exists(key):
                return key
        raise AssertionError("there are names without end")

    async def _publish(self, files: Mapping[str, str]) -> None:
        """Copy what is committed to where it is read. What is not there has been copied by
        another worker: nobody deletes it before."""
        await _together(self.store.copy(key, to) for key, to in files.items())
        await _together(self.store.delete(key) for key in files)
        self._moved.update(files)

    async def _change(self, app: str, change: Callable[[Manifest], T]) -> T:
        """Replace the manifest by what ``change`` makes of it, which is called again when another
        worker was faster."""
        key = self._manifest_key(app)
        while True:
            if not self._is_current:
                self._current = await self.store.get(key)
            manifest = self._decoded(app, self._current)
            result = change(manifest)
            for name in self._moved & manifest.pending.keys():
                del manifest.pending[name]
            data = manifest.encode()
            before = None if self._current is None else self._current.tag
            self._is_current = False
            tag = await self.store.put_if(key, data, before)
            if tag is not None:
                self._current, self._is_current = Stored(data, tag), True
                self._moved.clear()
                return result

    async def _check(self) -> None:
        """That the store heeds conditions: one that ignores them would take a fenced worker's
        commits."""
        if self._is_checked:
            return
        key = f"{self._prefix}{HIDDEN}/probe"
        await self.store.put(key, b"Conditional writes are tried on this object.\n")
        for tag in (None, '"00000000000000000000000000000000"'):
            if await self.store.put_if(key, b"", tag) is not None:
                raise SinkError(
                    f"{self._description}: the store ignores conditions of writes (If-Match, "
                    "If-None-Match), so that no worker could be kept from writing what another "
                    "one has written already"
                )
        self._is_checked = True

    def _decoded(self, app: str, found: Stored | None) -> Manifest:
        if found is None:
            return Manifest()
        try:
            return Manifest.decode(found.data)
        except ValueError as error:
            raise SinkError(
                f"{self._description}: {self._manifest_key(app)} cannot be read: {error}"
            ) from error

    def _owned(self, app: str) -> str:
        return f"{self._prefix}{HIDDEN}/{quote(app, '')}/{quote(self._name, '')}/"

    def _manifest_key(self, app: str) -> str:
        return f"{self._owned(app)}positions"

    async def _bounded(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            async with asyncio.timeout(self._timeout):
                return await work
        except TimeoutError:
            raise SinkTimeout(
                f"{self._description} did not answer within {self._timeout:g} s"
            ) from None


def _is_outdated(hidden: _Hidden, claims: Mapping[TopicPartition, Claim]) -> bool:
    claim = claims.get(hidden.tp)
    return claim is not None and hidden.epoch < claim.epoch


async def _together(calls: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Results in order. Raises the first exception, with which the other calls are given up.

    Not a TaskGroup: before Python 3.13 the task it fails in counts as one being cancelled from then
    on, which aiohttp believes.
    """
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
