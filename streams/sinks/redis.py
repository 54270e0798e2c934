"""Keys in Redis that change in the same atomic step as the position they came from."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from onceward.broker.client import TopicPartition

from ..config import choice
from ..engine.feed import Slot
from ..errors import ConfigurationError
from . import redis_script as script
from .effects import Batch
from .errors import SinkError, SinkFenced, SinkTimeout, SinkUnavailable
from .positions import Advance, Claim, Position, Start
from .redis_changes import Changes, Kind, joined, text
from .redis_session import Address, configured, found, is_new_enough, is_passing, moved_to, reason
from .rows import Deletion, Row, as_row, plain
from .sink import TransactionalSink
from .table import Mode, TableRows

logger = logging.getLogger(__name__)

Key = str | Sequence[str] | Callable[[Any], Any]

_JSON: Final[frozenset[type]] = frozenset({int, str, float, bool, type(None)})
_NO_KEYS: Final = (bool, float, dict, list, tuple, set, frozenset, msgspec.Struct)
_MAX_BULK_BYTES: Final = 512 * 1024 * 1024
_MOST_MOVES: Final = 5


class RedisSink(TableRows, TransactionalSink):
    """Transactional: every effect appears exactly once, of an appended list or stream, too.

    Redis 7.0 or newer, or a server that speaks as such. ``url`` is ``redis://user:pw@host:6379/0``,
    ``rediss://`` with TLS or ``unix:///path?db=0``. ``kind`` says what a row is there: ``hash``
    (fields a row has are set, those that are None removed, the others stay), ``json`` (a document),
    ``string`` (written values are text, bytes or numbers), ``list`` (JSON documents, appended) or
    ``stream`` (an entry with the row's fields). None deletes the key.

    The key is ``prefix`` and: with ``key="id"`` that field, with ``key=("a", "b")`` both with a
    colon between, with a function what it makes of the value, and without it the key given to
    ``write``, else the record's. Without ``key`` lists and streams are one, called ``prefix``.
    ``ttl`` in seconds begins anew with every write; ``max_length`` drops the oldest elements (of
    streams about so many remain). ``name`` (default: of the prefix) names the position, which is in
    the hash ``onceward_positions:<app>:<name>`` of the same database, by ``topic:partition``:
    renaming it starts anew.

    A commit is one script, so readers see all of it or nothing, and the server does nothing else
    meanwhile (some 5 µs per row): ``batch_rows`` bounds that. It is not split.

    What a crash of the server loses it loses with its position. ``appendfsync always`` loses
    nothing; ``everysec`` the last second in a power failure; a replica that takes over what had not
    reached it, unless every commit waits for so many ``replicas``. Then the sink is behind Kafka's
    offsets, and the worker says so and stops. Without ``appendonly``, or if memory may be freed of
    any key, everything can be gone, which a worker started later cannot know: that needs
    ``allow_volatile=True``. In a Redis Cluster everything is in the slot of the prefix's hash tag,
    as in ``prefix="{shop}order:"``. Raises ConfigurationError, and ImportError without redis.
    """

    batch_rows = 2_000
    batch_bytes = 4 * 1024 * 1024

    def __init__(
        self,
        url: str,
        *,
        key: Key | None = None,
        prefix: str = "",
        kind: str = "hash",
        ttl: float | None = None,
        max_length: int | None = None,
        replicas: int = 0,
        allow_volatile: bool = False,
        name: str | None = None,
        on_error: str | None = None,
        timeout: float = 10.0,
    ) -> None:
        name = name or re.sub("[{}]|:$", "", prefix) or "redis"
        self.kind = choice(Kind, "kind", kind)
        self._make_key = key if callable(key) else None
        columns = None if callable(key) else key
        self._is_one_key = key is None and self.kind.appends
        self._is_keyed = columns is None and not self._is_one_key
        """Rows are ``{"key": ..., "value": ...}``, as their fields do not say the key."""
        super().__init__(
            name,
            key="key" if self._is_keyed else columns,
            mode=Mode.INSERT if self.kind.appends else Mode.UPSERT,
            on_error=on_error,
        )
        self.timeout = timeout
        self.prefix = prefix
        self._address = Address(url, name)
        self._ttl = "" if ttl is None else str(int(ttl * 1000))
        self._longest = "" if max_length is None else str(max_length)
        self._replicas = replicas
        self._allow_volatile = allow_volatile
        if self.kind in (Kind.JSON, Kind.LIST):
            self.takes = _JSON
        self._check_declared(ttl, max_length, columns)
        self._tag = script.hash_tag(prefix)
        self._client: Any = None
        self._is_checked = False
        self._has_warned = False
        self._node: tuple[str, int] | None = None
        self._max_bytes = _MAX_BULK_BYTES
        self._known: dict[tuple[str, TopicPartition], int] = {}
        self._users = 0

    def _check_declared(self, ttl: float | None, max_length: int | None, columns: object) -> None:
        """Raises ConfigurationError."""
        wrong = None
        if ttl is not None and not 0.001 <= ttl < 1e9:
            wrong = f"ttl= is in seconds, from 0.001 to 1e9, not {ttl!r}"
        elif max_length is not None and (max_length < 1 or not self.kind.appends):
            wrong = "max_length= is for kind='list' or 'stream', and at least 1"
        elif self._replicas < 0 or self.timeout <= 0:
            wrong = "replicas= must not be negative, and timeout= more than 0"
        elif self.kind is Kind.STRING and columns is not None:
            wrong = "kind='string' writes values without fields: key= must be a function, or none"
        elif self._is_one_key and not self.prefix:
            wrong = f"kind={str(self.kind)!r} needs key=, or prefix= as its one key"
        if wrong is not None:
            raise ConfigurationError(f"sink {self.name!r}: {wrong}")

    def describe(self) -> str:
        what = f"{self.kind} {self.prefix}{'' if self._is_one_key else '*'}"
        return f"sink {self.name!r} ({what} in {self._address})"

    # for agents

    def encode(self, value: Any, key: Any, slot: Slot) -> Row | Deletion:
        """Raises TypeError, ValueError, and what the key function does."""
        if value is None:
            if self.kind.appends:
                raise ValueError(f"sink {self.name!r}: None deletes, and a {self.kind} is added to")
            if not self._is_keyed:
                return super().encode(None, key, slot)
            return Deletion({"key": self._checked(slot.key() if key is None else key)})
        if self._is_keyed:
            if key is None:
                key = slot.key() if self._make_key is None else self._make_key(value)
            return {"key": self._checked(key), "value": self._content(value)}
        row = as_row(value)
        for column in self.key:
            self._checked(row.get(column), column)
        return self._adapted(row)

    def adapt(self, value: Any) -> Any:
        if self.takes is _JSON:
            return msgspec.to_builtins(value, str_keys=True)
        return plain(value)

    def _content(self, value: Any) -> Any:
        if self.kind is Kind.STRING:
            return value if type(value) in self.takes else self.adapt(value)
        return self._adapted(as_row(value))

    def _adapted(self, row: Row) -> Row:
        for column, field in row.items():
            if type(field) not in self.takes:
                row[column] = self.adapt(field)
        return row

    def _checked(self, key: Any, column: str | None = None) -> Any:
        what = "the key" if column is None else f"{column!r}, which is its key,"
        if key is None:
            raise ValueError(f"sink {self.name!r}: {what} of a row is None")
        if isinstance(key, _NO_KEYS):
            raise TypeError(f"sink {self.name!r}: {what} of a row cannot be {key!r}")
        return plain(key)

    # for the engine

    async def start(self) -> None:
        self._users += 1
        await self._call(lambda client: asyncio.sleep(0))

    async def close(self) -> None:
        self._users = max(0, self._users - 1)
        if self._users == 0:
            await self._disconnect()

    async def take_over(
        self, app: str, starts: Mapping[TopicPartition, Start]
    ) -> dict[TopicPartition, Claim]:
        known = [tp for tp in starts if (app, tp) in self._known]
        keys = script.keys_of(app, self.name, self._tag)
        verdict, *told = await self._run(script.TAKE_OVER, keys, [script.taken_over(starts, known)])
        if verdict == b"lost":
            tp = script.tp_of(told[0])
            raise SinkError(
                f"{self.describe()} knows nothing of {tp} any more, but had it up to offset "
                f"{self._known[app, tp]}: was the server emptied, or started again without what "
                "it had? Set the group's offsets back to have everything written again, or start "
                "the worker again to go on without what is lost"
            )
        taken, refused = told
        reasons = {
            script.effect_id_of(field): why.decode()
            for field, why in zip(refused[::2], refused[1::2], strict=True)
        }
        claims = {}
        for place, at, epoch, _ in taken:
            tp = script.tp_of(place)
            mine = {id_: why for id_, why in reasons.items() if id_[:2] == tp}
            claims[tp] = Claim(int(at), int(epoch), mine)
            self._known[app, tp] = int(at)
        return claims

    async def positions(self, app: str) -> dict[TopicPartition, Position]:
        key, _ = script.keys_of(app, self.name, self._tag)
        try:
            stored = await self._call(lambda client: client.hgetall(key), check=False)
        finally:
            if self._users == 0:
                await self._disconnect()
        positions = {}
        for place, at in stored.items():
            try:
                positions[script.tp_of(place)] = script.position_of(at)
            except ValueError:
                raise SinkError(
                    f"{self.describe()}: {key} has no position in {place.decode()}: {at!r}"
                ) from None
        return positions

    async def commit(self, batch: Batch, advances: Sequence[Advance]) -> None:
        """What is of no use in the server's eyes is refused, and the rest tried again: nothing has
        happened until a script has found nothing wrong."""
        changes = self._changes(batch)
        keys = script.keys_of(batch.app, self.name, self._tag)
        options = [str(self.kind), self.kind.stored_as, self._ttl, self._longest]
        while True:
            ids = batch.ids() if batch.refused else []
            refused = script.refused((ids[at], reason) for at, reason in batch.refused)
            arguments = [*options, script.advanced(advances), refused, *changes.arguments()]
            written = changes.keys
            verdict, *told = await self._run(script.COMMIT, [*keys, *written], arguments)
            if verdict != b"wrong":
                break
            for number, kind in told[0]:
                why = f"key {_shown(written[number])} is a {kind.decode()} already"
                for index in changes.take_back(written[number]):
                    batch.refuse(index, why)
            batch.refused.sort()
        if verdict == b"fenced":
            lost = script.tp_of(told[0])
            raise SinkFenced(f"{self.describe()}: {lost} belongs to another worker now")
        if verdict == b"forbidden":
            raise SinkError(f"{self.describe()}: the user may not run {told[0].decode()}")
        for advance in advances:
            self._known[batch.app, advance.tp] = advance.next_offset

    def _changes(self, batch: Batch) -> Changes:
        changes = Changes(self.kind, self._max_bytes)
        for index, value in enumerate(batch.values):
            try:
                if isinstance(value, Deletion):
                    changes.delete(index, self._key_of(value.key))
                else:
                    content = value["value"] if self._is_keyed else value
                    changes.write(index, self._key_of(value), content)
            except (ValueError, TypeError, OverflowError) as error:
                batch.refuse(index, f"{type(error).__name__}: {error}")
        return changes

    def _key_of(self, row: Row) -> bytes:
        return text(self.prefix) + joined([row[column] for column in self.key])

    async def apply(self, batch: Batch) -> None:
        """Without positions, so of no use to the engine."""
        await self.commit(batch, [])

    # the server

    async def _run(self, code: str, keys: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
        """What a script answers, when enough replicas have what it did, and all before it."""

        async def ask(client: Any) -> list[Any]:
            if not self._replicas:
                return list(await client.eval(code, len(keys), *keys, *arguments))
            pipeline = client.pipeline(transaction=False)
            pipeline.eval(code, len(keys), *keys, *arguments)
            pipeline.execute_command("WAIT", self._replicas, max(1, int(self.timeout * 500)))
            answer, reached = await pipeline.execute()
            if answer[0] == b"done" and reached < self._replicas:
                raise SinkUnavailable(
                    f"{self.describe()}: {reached} of {self._replicas} replicas have the commit"
                )
            return list(answer)

        answer: list[Any] = await self._call(ask)
        return answer

    async def _call(self, ask: Callable[[Any], Any], *, check: bool = True) -> Any:
        """Raises SinkUnavailable, SinkError."""
        try:
            async with asyncio.timeout(self.timeout):
                for _ in range(_MOST_MOVES):
                    try:
                        client = await self._connected(check)
                        return await ask(client)
                    except Exception as error:
                        node = moved_to(error)
                        if node is None:
                            raise
                        self._node = node
                        await self._disconnect()
            raise SinkUnavailable(f"{self.describe()}: no node of the cluster has its slot")
        except TimeoutError:
            self._is_checked = False
            raise SinkTimeout(
                f"{self.describe()} did not answer within {self.timeout:g} s"
            ) from None
        except Exception as error:
            told = found(error)
            if told is None:
                raise
            self._is_checked = False
            message = f"{self.describe()}: {self._address.scrub(reason(told))}"
            if is_passing(told):
                self._node = None
                raise SinkUnavailable(message) from error
            raise SinkError(message) from error

    async def _connected(self, check: bool) -> Any:
        if self._client is None:
            self._client = self._address.connect(self._node)
            self._is_checked = False
        if check and not self._is_checked:
            await self._check_server(self._client)
            self._is_checked = True
        return self._client

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.connection_pool.disconnect()

    async def _check_server(self, client: Any) -> None:
        """Whether it keeps what it is given. Raises SinkError, SinkUnavailable."""
        info = await client.info()
        version = str(info.get("redis_version", "of an unknown version"))
        if not is_new_enough(version):
            raise SinkError(f"{self.describe()}: Redis {version}, and 7.0 or newer is needed")
        if info.get("loading"):  # until then it says that its log is off
            raise SinkUnavailable(f"{self.describe()} is loading what it had")
        if info.get("role") == "slave":
            raise SinkUnavailable(f"{self.describe()} is a replica, which cannot be written to")
        if info.get("cluster_enabled") and not self._tag:
            raise SinkError(
                f"{self.describe()} is a Redis Cluster, where a commit must be in one slot: "
                f"give a prefix with a hash tag, as prefix='{{{self.name}}}{self.prefix}'"
            )
        settings = await configured(client)
        self._max_bytes = int(settings.get("proto-max-bulk-len", _MAX_BULK_BYTES))
        evicts = info.get("maxmemory") and str(info["maxmemory_policy"]).startswith("allkeys")
        volatile = None
        if not info.get("aof_enabled"):
            volatile = "appendonly is off, so a crash of the server loses all since a snapshot"
        elif evicts:
            volatile = f"maxmemory-policy {info['maxmemory_policy']} may drop positions and rows"
        if volatile is not None and not self._allow_volatile:
            raise SinkError(
                f"{self.describe()}: {volatile}; change that, or give allow_volatile=True"
            )
        sync = settings.get("appendfsync", "always")
        if volatile is None and sync != "always" and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "%s: appendfsync is %s, so a power failure may lose the last commits, and the "
                "worker would stop as the sink is behind Kafka's offsets", self.describe(), sync,
            )  # fmt: skip


def _shown(key: bytes) -> str:
    return repr(key.decode(errors="backslashreplace"))
