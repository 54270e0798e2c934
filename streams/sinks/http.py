"""Requests to an HTTP service, each with a key by which the service knows a repeated one.

Needs httpx (``pip install 'onceward[http]'``).
"""

from __future__ import annotations

import asyncio
import enum
import hashlib
import re
import ssl
import zlib
from collections import deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

import msgspec

from ..config import choice
from ..engine.feed import Slot
from ..errors import ConfigurationError
from .effects import Batch, Effect
from .errors import SinkError, SinkUnavailable
from .http_answer import MOST_READ, Answer, Conflict, Verdict, pause, verdict
from .rows import Deletion, Row
from .sink import Strength
from .table import Mode, TableRows

if TYPE_CHECKING:
    import httpx

_KEEP_ALIVE_S: Final = 2.0
_LONGEST_URL: Final = 60_000
"""httpx refuses one of 65,536 characters."""
_TYPES: Final = {
    None: "application/json",
    "array": "application/json",
    "jsonl": "application/x-ndjson",
}
_HEADER_NAME: Final = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+")
_HEADER_VALUE: Final = re.compile(r"|[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
_OWN_HEADERS: Final = frozenset({"connection", "content-length", "transfer-encoding", "upgrade"})
_OF_THE_SINK: Final = re.compile(r"CERTIFICATE_VERIFY_FAILED|^407 ")
"""What keeps connections from being made until somebody changes something: the service's
certificate, the proxy's password."""


class Order(enum.StrEnum):
    """What is sent one after the other, each when the one before is answered."""

    PARTITION = "partition"
    KEY = "key"
    NONE = "none"


class _Part(NamedTuple):
    """One effect on its way: ``at`` in the batch, its idempotency key, where to, its JSON or None
    to delete."""

    at: int
    key: str
    address: str
    body: bytes | None

    @property
    def size(self) -> int:
        return len(self.body or b"")


class HttpSink(TableRows):
    """Idempotent by key: a crash repeats requests with the same key, which the service must
    remember for as long as a worker may be away. Rows are JSON objects.

    ``url`` may have fields of ``key`` in it: with ``PUT`` to ``https://host/items/{id}``, None
    deletes. ``method``: POST, PUT or PATCH. ``batch``: None is a request per row; ``array`` and
    ``jsonl`` send up to ``max_rows`` and ``max_bytes`` (of rows) at once, which the service takes
    as a whole or refuses. ``key_header`` is the header with the key. After a crash bodies are cut
    differently, so in a bulk body it is the rows' keys that count: ``key_field`` names the field
    they are put in, and without it the sink is at least once.

    ``order``: effects of one input partition (``partition``), or of one ``key`` (``key``), are sent
    in order, each after the answer to the one before, and those of several at the same time, at
    most ``in_flight`` requests; ``none``: all at the same time.

    2xx is success; only the status is looked at. No answer within ``timeout`` seconds, 408, 425,
    429, 502, 503 and 504 are tried again for ever, after ``Retry-After`` (at most an hour); other
    5xx for ``patience`` seconds (None: for ever). 401, 403, 405, 407, 3xx, and 404 without a field
    in ``url``, stop the worker, as do certificates that are not right; every other status refuses
    the row. ``conflict``: what 409 means.

    ``headers`` and ``token`` (sent as ``Bearer``) and the address's query are in no message.
    ``proxy`` is an address; those of the environment are not used. Raises ConfigurationError.
    """

    strength = Strength.IDEMPOTENT_BY_KEY
    takes = frozenset({int, str, float, bool, type(None)})

    def __init__(
        self,
        url: str,
        *,
        method: str = "POST",
        key: str | Sequence[str] | None = None,
        batch: str | None = None,
        max_rows: int = 500,
        max_bytes: int = 1024 * 1024,
        key_header: str = "Idempotency-Key",
        key_field: str | None = None,
        order: str = "partition",
        in_flight: int = 8,
        conflict: str = "retry",
        headers: Mapping[str, str] | None = None,
        token: str | None = None,
        timeout: float = 10.0,
        patience: float | None = 300.0,
        tls: ssl.SSLContext | None = None,
        proxy: str | None = None,
        name: str | None = None,
        on_error: str | None = None,
    ) -> None:
        try:
            parts = urlsplit(url)
            is_right = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            is_right = False
        if not is_right:
            raise ConfigurationError("HttpSink: the address must be http(s)://host[:port]/...")
        if "@" in parts.netloc:
            raise ConfigurationError(
                "HttpSink: a password does not belong in the address; use headers= or token="
            )
        mode = Mode.UPSERT if method == "PUT" and key else Mode.INSERT
        super().__init__(name or str(parts.hostname), key=key, mode=mode, on_error=on_error)
        self.url = url
        self.method = method
        self.batch = batch
        self.max_rows = 1 if batch is None else max_rows
        self.max_bytes = max_bytes
        self.key_header = key_header
        self.key_field = key_field
        self.order = choice(Order, "order", order)
        self.in_flight = in_flight
        self.conflict = choice(Conflict, "conflict", conflict)
        self.timeout = timeout
        self.patience = patience
        self._host = f"{parts.scheme}://{parts.netloc}{parts.path}"
        self._fields = tuple(re.findall(r"\{(.*?)\}", url))
        self._secrets = [value for value in (*(headers or {}).values(), token) if value]
        self._headers = {
            "accept-encoding": "identity",
            "content-type": _TYPES.get(batch, ""),
            "user-agent": "onceward",
        }
        self._headers |= {name.lower(): value for name, value in (headers or {}).items()}
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"
        self._tls = tls
        self._proxy = proxy
        self._connections: httpx.AsyncHTTPTransport | None = None
        self._check()
        if batch is None:
            self.batch_rows = 1_000
        elif key_field is None:
            self.strength = Strength.AT_LEAST_ONCE
        self._users = 0
        self._not_before = 0.0
        self._failing: dict[str, float] = {}

    def _check(self) -> None:
        """Raises ConfigurationError."""
        wrong = None
        if self.method not in ("POST", "PUT", "PATCH"):
            wrong = f"method must be POST, PUT or PATCH, not {self.method!r}"
        elif self.batch not in _TYPES:
            wrong = f"batch must be array, jsonl or None, not {self.batch!r}"
        elif min(self.max_rows, self.max_bytes, self.in_flight, self.timeout) <= 0:
            wrong = "max_rows, max_bytes, in_flight and timeout must be more than 0"
        elif lacking := [field for field in self._fields if field not in self.key]:
            wrong = f"{lacking[0]!r} in the address must be in key="
        elif self._fields and self.batch is not None:
            wrong = "a bulk body has one address, without fields"
        elif self.key_field is not None and self.batch is None:
            wrong = "key_field= is for bulk bodies; a request per row has its key in key_header"
        elif self.order is Order.KEY and not self.key:
            wrong = "order='key' needs key="
        elif not all(map(_HEADER_NAME.fullmatch, (*self._headers, self.key_header))):
            wrong = "a header's name has a character that none may have"
        elif not all(map(_HEADER_VALUE.fullmatch, self._headers.values())):
            wrong = (
                "a header or the token has a character, or a space at an end, that none may have"
            )
        elif reserved := _OWN_HEADERS & {*self._headers, self.key_header.lower()}:
            wrong = f"the header {min(reserved)!r} is not yours to set"
        elif self.key_header.lower() in self._headers:
            wrong = f"key_header= would replace the header {self.key_header!r}"
        if wrong is not None:
            raise ConfigurationError(f"sink {self.name!r}: {wrong}")
        self._check_connecting()

    def _check_connecting(self) -> None:
        """What would fail at the first commit is said now. Raises ConfigurationError."""
        try:
            import httpx
        except ImportError:
            raise ConfigurationError("HttpSink needs httpx: pip install 'onceward[http]'") from None
        try:
            httpx.URL(re.sub(r"\{(.*?)\}", "x", self.url))
        except httpx.InvalidURL:
            raise ConfigurationError(f"sink {self.name!r}: the address cannot be used") from None
        if self._proxy is not None:
            try:
                self._open()
            except (ValueError, ImportError) as error:
                why = "needs httpx[socks]" if isinstance(error, ImportError) else "cannot be used"
                raise ConfigurationError(
                    f"sink {self.name!r}: the proxy's address {why} (it is not shown, as it may "
                    "hold a password); one looks like http://user:password@host:3128"
                ) from None
            self._connections = None

    def describe(self) -> str:
        return f"sink {self.name!r} ({self.method} {self._host})"

    # for agents

    def encode(self, value: Any, key: Any, slot: Slot) -> Row | Deletion:
        """Raises TypeError, ValueError."""
        if value is None and not (self.method == "PUT" and set(self._fields) == {*self.key}):
            raise ValueError(
                f"sink {self.name!r}: None deletes, which needs method='PUT' and every field of "
                "key= in the address"
            )
        row = super().encode(value, key, slot)
        fields = row.key if isinstance(row, Deletion) else row
        if self.key_field is not None and self.key_field in fields:
            raise ValueError(f"sink {self.name!r}: a row has the key_field {self.key_field!r}")
        for field in self._fields:
            if str(fields[field]) in ("", ".", ".."):
                raise ValueError(f"sink {self.name!r}: {field!r} would change the address")
        return row

    def adapt(self, value: Any) -> Any:
        return msgspec.to_builtins(value, str_keys=True)

    # for the engine

    async def start(self) -> None:
        self._users += 1

    async def close(self) -> None:
        self._users = max(0, self._users - 1)
        connections = self._connections
        if self._users == 0 and connections is not None:
            self._connections = None
            await connections.aclose()

    async def apply(self, batch: Batch) -> None:
        await self._wait_as_asked()
        refused: list[tuple[int, str]] = []
        lanes = deque(self._lanes(batch, refused))
        failures: list[SinkUnavailable | SinkError] = []

        async def work() -> None:
            while lanes:
                for parts in lanes.popleft():
                    if failures:
                        return
                    try:
                        refused.extend(await self._deliver(batch, parts))
                    except (SinkUnavailable, SinkError) as error:
                        failures.append(error)
                    except Exception as error:  # noqa: BLE001 - it must say of which record
                        failures.append(self._wrong(batch, parts, f"cannot be asked: {error!r}"))

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self.in_flight, len(lanes))):
                group.create_task(work())
        if failures:
            raise next((each for each in failures if isinstance(each, SinkError)), failures[0])
        self._failing.clear()
        for index, reason in sorted(refused):
            batch.refuse(index, reason)

    # what is sent

    def _lanes(self, batch: Batch, refused: list[tuple[int, str]]) -> list[list[list[_Part]]]:
        """Requests by what must be one after the other; rows that are no JSON are refused."""
        lanes: dict[Hashable, list[_Part]] = {}
        for index, effect in enumerate(batch):
            try:
                part = self._part(index, effect)
            except (ValueError, TypeError, OverflowError) as error:
                refused.append(self._refused(batch, index, str(error)))
                continue
            lanes.setdefault(self._lane(effect.value, effect.id[:2]), []).append(part)
        requests = [list(self._cut(parts)) for parts in lanes.values()]
        if self.order is Order.NONE:
            return [[parts] for lane in requests for parts in lane]
        return requests

    def _lane(self, value: Row | Deletion, tp: tuple[str, int]) -> Hashable:
        if self.order is Order.PARTITION:
            return tp
        if self.order is Order.NONE:
            return None
        row = value.key if isinstance(value, Deletion) else value
        key = msgspec.json.encode([row[field] for field in self.key])
        return zlib.crc32(key) % self.in_flight

    def _part(self, index: int, effect: Effect) -> _Part:
        """Raises ValueError, TypeError, OverflowError for what cannot be sent."""
        value, _, key = effect
        if isinstance(value, Deletion):
            return _Part(index, key, self._address(value.key), None)
        keyed = value if self.key_field is None else {self.key_field: key, **value}
        return _Part(index, key, self._address(value), msgspec.json.encode(keyed))

    def _cut(self, parts: Sequence[_Part]) -> Iterator[list[_Part]]:
        """One request each."""
        taken: list[_Part] = []
        size = 0
        for part in parts:
            is_full = len(taken) >= self.max_rows or size + part.size > self.max_bytes
            if taken and is_full:
                yield taken
                taken, size = [], 0
            taken.append(part)
            size += part.size
        if taken:
            yield taken

    async def _deliver(self, batch: Batch, parts: Sequence[_Part]) -> list[tuple[int, str]]:
        """Send one request, in halves if it is refused; returns refused effects and why.

        Raises SinkUnavailable, SinkError.
        """
        answer = await self._ask(batch, parts)
        meaning = verdict(
            answer.status,
            self.conflict,
            is_deletion=parts[0].body is None,
            has_fields=bool(self._fields),
        )
        if meaning is Verdict.DONE:
            for part in parts:
                self._failing.pop(part.key, None)
            return []
        said = answer.shown(self._secrets)
        if meaning is Verdict.WRONG:
            raise self._wrong(batch, parts, f"answers with {said}")
        if meaning is Verdict.LATER or (
            meaning is Verdict.LATER_WITHIN_REASON and not self._is_hopeless(parts)
        ):
            asked = asyncio.get_running_loop().time() + pause(answer.headers)
            self._not_before = max(self._not_before, asked)
            raise self._later(batch, parts, f"answers with {said}")
        if len(parts) == 1:
            return [self._refused(batch, parts[0].at, said)]
        middle = len(parts) // 2
        first = await self._deliver(batch, parts[:middle])
        return first + await self._deliver(batch, parts[middle:])

    async def _ask(self, batch: Batch, parts: Sequence[_Part]) -> Answer:
        import httpx

        is_deletion = parts[0].body is None
        try:
            request = httpx.Request(
                "DELETE" if is_deletion else self.method,
                parts[0].address,
                content=None if is_deletion else self._content(parts),
                headers={**self._headers, self.key_header: self._request_key(parts)},
            )
            async with asyncio.timeout(self.timeout):
                return await self._exchange(request)
        except TimeoutError:
            silence = f"did not answer within {self.timeout:g} s"
            raise self._later(batch, parts, silence) from None
        except httpx.TransportError as error:
            told = f"does not answer: {type(error).__name__}: {error}"
            is_ours = isinstance(error, httpx.LocalProtocolError) or _OF_THE_SINK.search(str(error))
            raise (self._wrong if is_ours else self._later)(batch, parts, told) from error

    def _later(self, batch: Batch, parts: Sequence[_Part], told: str) -> SinkUnavailable:
        return SinkUnavailable(f"{self.describe()} {told} {self._of(batch, parts)}")

    def _wrong(self, batch: Batch, parts: Sequence[_Part], told: str) -> SinkError:
        return SinkError(f"{self.describe()} {told} {self._of(batch, parts)}")

    @staticmethod
    def _of(batch: Batch, parts: Sequence[_Part]) -> str:
        others = f" and {len(parts) - 1} more" if len(parts) > 1 else ""
        return f"(asked for {batch.place(parts[0].at)}{others})"

    async def _exchange(self, request: httpx.Request) -> Answer:
        response = await self._open().handle_async_request(request)
        try:
            body = b""
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > MOST_READ:
                    break
            return Answer(response.status_code, response.headers, body)
        finally:
            await response.aclose()

    def _open(self) -> httpx.AsyncHTTPTransport:
        """Connections without a client: that keeps cookies and logs every address."""
        if self._connections is None:
            import httpx

            self._connections = httpx.AsyncHTTPTransport(
                verify=True if self._tls is None else self._tls,
                limits=httpx.Limits(max_connections=self.in_flight, keepalive_expiry=_KEEP_ALIVE_S),
                proxy=self._proxy,
            )
        return self._connections

    def _address(self, row: Row) -> str:
        """Raises ValueError."""
        if not self._fields:
            return self.url
        url = re.sub(r"\{(.*?)\}", lambda found: quote(str(row[found[1]]), safe=""), self.url)
        if len(url) > _LONGEST_URL:
            raise ValueError(f"an address of {len(url)} characters is too long")
        return url

    def _content(self, parts: Sequence[_Part]) -> bytes:
        bodies = [part.body or b"" for part in parts]
        if self.batch == "array":
            return b"[" + b",".join(bodies) + b"]"
        if self.batch == "jsonl":
            return b"".join(body + b"\n" for body in bodies)
        return bodies[0]

    def _request_key(self, parts: Sequence[_Part]) -> str:
        """The effect's key, or for a bulk body a digest of its effects' keys."""
        if self.batch is None:
            return quote(parts[0].key, safe=":/")
        keys = "\n".join(part.key for part in parts)
        return hashlib.sha256(keys.encode()).hexdigest()

    # what is answered

    def _is_hopeless(self, parts: Sequence[_Part]) -> bool:
        """Whether every effect of the request has failed for longer than ``patience``."""
        if self.patience is None:
            return False
        now = asyncio.get_running_loop().time()
        since = max(self._failing.setdefault(part.key, now) for part in parts)
        return now - since >= self.patience

    async def _wait_as_asked(self) -> None:
        left = self._not_before - asyncio.get_running_loop().time()
        if left > 0:
            await asyncio.sleep(min(left, self.timeout))
        if left > self.timeout:
            raise SinkUnavailable(
                f"{self.describe()} asks for no requests for another {left - self.timeout:.0f} s"
            )

    def _refused(self, batch: Batch, index: int, reason: str) -> tuple[int, str]:
        """For the dead letter topic. Raises SinkError under the policy ``stop``."""
        if not batch.dead_letters:
            raise SinkError(
                f"{self.describe()} refuses what was written for {batch.place(index)}: {reason}. "
                "Others of this commit may have been taken, they will be sent again with the same "
                "keys; correct the agent or the service and start the worker again, or set "
                'on_error="dead_letter"'
            )
        return index, reason
