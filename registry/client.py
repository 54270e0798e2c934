"""A client of a schema registry: ours, Confluent's or Karapace.

For serializers: what never changes (a schema by its id, the id of a schema in a subject) is asked
for once. Every method is a coroutine; ``now`` runs one where there is no event loop.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from .errors import RegistryError
from .exchange import Address, Answer, BadAnswer, exchange
from .schemas.schema import Reference, SchemaType

logger = logging.getLogger(__name__)

_MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_PASSING: Final = frozenset({408, 429, 500, 502, 503, 504})
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0

T = TypeVar("T")


class RegistryUnavailable(RegistryError):
    """No address of the registry gave an answer in time (code 50003)."""

    def __init__(self, message: str) -> None:
        super().__init__(50003, message)


@dataclass(frozen=True, slots=True)
class SchemaText:
    """A schema as it is registered."""

    schema_type: SchemaType
    text: str
    references: tuple[Reference, ...] = ()


class Registered(NamedTuple):
    """A schema with where it is. ``version`` and ``guid`` are None where a registry does not tell
    (Confluent's tells both from 8.0, version from 7.4)."""

    subject: str
    id: int
    version: int | None
    guid: str | None
    schema: SchemaText


class RegistryClient:
    """``urls``: one address, several with commas between, or a list; ``http://user:password@host``
    carries basic authentication, as does ``auth``.

    An address that does not answer within ``request_timeout`` seconds, or answers that it cannot
    now, is followed by the next; after ``timeout`` seconds of that RegistryUnavailable is raised.
    All other errors are RegistryError with the registry's own code. ``latest_ttl``: seconds the
    newest version of a subject is believed.
    """

    is_local = False

    def __init__(
        self,
        urls: str | Iterable[str],
        *,
        auth: tuple[str, str] | None = None,
        request_timeout: float = 5.0,
        timeout: float = 15.0,
        latest_ttl: float = 60.0,
        headers: dict[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        given = urls.split(",") if isinstance(urls, str) else list(urls)
        self._addresses = [Address.parse(url.strip()) for url in given if url.strip()]
        if not self._addresses:
            raise ValueError("a registry needs at least one address")
        self.request_timeout = request_timeout
        self.timeout = timeout
        self._latest_ttl = latest_ttl
        self._headers = headers or {}
        self._auth = ":".join(auth) if auth else ""
        self._tls = tls
        self._first = 0
        self._known: dict[tuple[Any, ...], Any] = {}
        self._latest: dict[str, tuple[float, Registered]] = {}
        self._asking: dict[tuple[Any, ...], asyncio.Task[Any]] = {}

    def __repr__(self) -> str:
        return f"RegistryClient({self.address!r})"

    @property
    def address(self) -> str:
        """All addresses, without passwords."""
        return ",".join(map(str, self._addresses))

    def now(self, asking: Coroutine[Any, Any, T]) -> T:
        """Run one of the client's coroutines to its end, outside of event loops only. Raises
        RuntimeError inside of one."""
        return asyncio.run(asking)

    # what serializers ask

    async def register(
        self, subject: str, schema: SchemaText, *, normalize: bool = False
    ) -> Registered:
        """Add a version, or find the equal one. Raises RegistryError (40901: incompatible)."""
        path = f"/subjects/{_quoted(subject)}/versions{_query(normalize=normalize)}"
        return await self._find("register", subject, schema, normalize, path)

    async def lookup(
        self, subject: str, schema: SchemaText, *, normalize: bool = False
    ) -> Registered:
        """The version of a subject that is this schema. Raises RegistryError (40401, 40403)."""
        path = f"/subjects/{_quoted(subject)}{_query(normalize=normalize)}"
        return await self._find("lookup", subject, schema, normalize, path)

    async def by_id(self, schema_id: int, subject: str | None = None) -> SchemaText:
        """Raises RegistryError (40403)."""
        path = f"/schemas/ids/{schema_id}{_query(subject=subject)}"
        found = await self._once(("id", schema_id, subject), lambda: self._get(path))
        return _schema(found)

    async def by_guid(self, guid: str) -> SchemaText:
        """Raises RegistryError (40403; 404 of registries without GUIDs)."""
        found = await self._once(("guid", guid), lambda: self._get(f"/schemas/guids/{guid}"))
        return _schema(found)

    async def latest(self, subject: str) -> Registered:
        """The newest version, at most ``latest_ttl`` seconds old. Raises RegistryError."""
        now = asyncio.get_running_loop().time()
        known = self._latest.get(subject)
        if known is not None and 0 <= now - known[0] < self._latest_ttl:
            return known[1]
        path = f"/subjects/{_quoted(subject)}/versions/latest"
        found = _registered(subject, await self._get(path))
        self._latest[subject] = now, found
        return found

    async def version(self, subject: str, version: int, *, deleted: bool = True) -> Registered:
        """One version; -1 is the newest. Raises RegistryError (40401, 40402)."""
        if version < 0:
            return await self.latest(subject)
        path = f"/subjects/{_quoted(subject)}/versions/{version}{_query(deleted=deleted)}"
        key = ("version", subject, version, deleted)
        return _registered(subject, await self._once(key, lambda: self._get(path)))

    async def versions(self, subject: str, *, deleted: bool = True) -> list[int]:
        """Numbers of all versions; none for an unknown subject."""
        path = f"/subjects/{_quoted(subject)}/versions{_query(deleted=deleted)}"
        try:
            found = await self._get(path)
        except RegistryError as error:
            if error.code == 40401:
                return []
            raise
        return [int(number) for number in found]

    # what people ask

    async def subjects(self) -> list[str]:
        return list(await self._get("/subjects"))

    async def is_compatible(
        self, subject: str, schema: SchemaText, version: int | str = "latest"
    ) -> tuple[bool, list[str]]:
        """Whether a schema may follow a version, and why not. Raises RegistryError."""
        path = f"/compatibility/subjects/{_quoted(subject)}/versions/{version}?verbose=true"
        found = await self._ask("POST", path, _body(schema))
        return bool(found["is_compatible"]), list(found.get("messages") or ())

    async def set_compatibility(self, level: str, subject: str | None = None) -> None:
        """Of a subject, or of all that have no own level."""
        path = "/config" if subject is None else f"/config/{_quoted(subject)}"
        await self._ask("PUT", path, {"compatibility": level})

    async def delete(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete a subject; returns the versions it had. A permanent deletion follows a soft one.
        What was remembered of the subject is forgotten."""
        path = f"/subjects/{_quoted(subject)}{_query(permanent=permanent)}"
        found = await self._ask("DELETE", path)
        self._latest.pop(subject, None)
        self._known = {key: value for key, value in self._known.items() if key[0] == "guid"}
        return [int(number) for number in found]

    # asking

    async def _find(
        self, how: str, subject: str, schema: SchemaText, normalize: bool, path: str
    ) -> Registered:
        key = (how, subject, schema, normalize)
        found = await self._once(key, lambda: self._ask("POST", path, _body(schema)))
        return _registered(subject, found, schema)

    async def _once(self, key: tuple[Any, ...], ask: Callable[[], Awaitable[Any]]) -> Any:
        """Ask once, however many want to know; a refusal is not remembered."""
        if key in self._known:
            return self._known[key]
        asking = self._asking.get(key)
        loop = asyncio.get_running_loop()
        if asking is None or asking.get_loop() is not loop:
            asking = loop.create_task(_awaited(ask))
            self._asking[key] = asking
            asking.add_done_callback(lambda done: self._asked(key, done))
        return await asyncio.shield(asking)

    def _asked(self, key: tuple[Any, ...], done: asyncio.Task[Any]) -> None:
        if self._asking.get(key) is done:
            del self._asking[key]
        if not done.cancelled() and done.exception() is None:
            self._known[key] = done.result()

    async def _get(self, path: str) -> Any:
        return await self._ask("GET", path)

    async def _ask(self, method: str, path: str, body: Any = None) -> Any:
        """Raises RegistryError, RegistryUnavailable."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.timeout
        pause = _FIRST_PAUSE_S
        while True:
            reasons = []
            for turn in range(len(self._addresses)):
                at = (self._first + turn) % len(self._addresses)
                answer = await self._try(self._addresses[at], method, path, body)
                if isinstance(answer, Answer):
                    self._first = at
                    return _result(answer)
                reasons.append(f"{self._addresses[at]}: {answer}")
            if loop.time() + pause >= deadline:
                raise RegistryUnavailable(
                    f"the schema registry gave no answer for {self.timeout:g} s "
                    f"({'; '.join(reasons)})"
                )
            logger.warning("schema registry: %s; trying again", "; ".join(reasons))
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    async def _try(self, address: Address, method: str, path: str, body: Any) -> Answer | str:
        """The answer, or why there is none that counts."""
        headers = {"Accept": f"{_MEDIA_TYPE}, application/json;q=0.9", **self._headers}
        data = None
        if body is not None:
            data = json.dumps(body, separators=(",", ":")).encode()
            headers["Content-Type"] = _MEDIA_TYPE
        user_info = self._auth or address.user_info
        if user_info:
            headers["Authorization"] = f"Basic {base64.b64encode(user_info.encode()).decode()}"
        try:
            async with asyncio.timeout(self.request_timeout):
                answer = await exchange(address, method, path, headers, data, self._tls)
        except TimeoutError:
            return f"no answer within {self.request_timeout:g} s"
        except (OSError, EOFError, BadAnswer) as error:
            return str(error) or type(error).__name__
        if answer.status in _PASSING:
            return f"status {answer.status}, {answer.body[:200].decode('utf-8', 'replace')}"
        return answer


async def _awaited(ask: Callable[[], Awaitable[T]]) -> T:
    return await ask()


def _result(answer: Answer) -> Any:
    """The JSON of an answer. Raises RegistryError."""
    try:
        found = json.loads(answer.body)
    except ValueError:
        found = answer.body[:200].decode("utf-8", "replace")
        if answer.status < 300:
            raise RegistryError(50005, f"the answer is no JSON: {found!r}") from None
    if answer.status < 300:
        return found
    if isinstance(found, dict) and isinstance(found.get("error_code"), int):
        raise RegistryError(found["error_code"], str(found.get("message", "")))
    raise RegistryError(answer.status, f"HTTP {answer.status}: {found}")


def _body(schema: SchemaText) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": schema.text}
    if schema.schema_type is not SchemaType.AVRO:
        body["schemaType"] = schema.schema_type.value
    if schema.references:
        body["references"] = [
            {"name": one.name, "subject": one.subject, "version": one.version}
            for one in schema.references
        ]
    return body


def _schema(found: Any, sent: SchemaText | None = None) -> SchemaText:
    """Raises RegistryError for an answer that holds none."""
    if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
        if sent is not None:
            return sent
        raise RegistryError(50005, f"the answer holds no schema: {str(found)[:200]}")
    references: Sequence[Any] = found.get("references") or ()
    return SchemaText(
        SchemaType(found.get("schemaType") or "AVRO"),
        found["schema"],
        tuple(Reference(one["name"], one["subject"], int(one["version"])) for one in references),
    )


def _registered(subject: str, found: Any, sent: SchemaText | None = None) -> Registered:
    if not isinstance(found, dict) or not isinstance(found.get("id"), int):
        raise RegistryError(50005, f"the answer holds no id: {str(found)[:200]}")
    version, guid = found.get("version"), found.get("guid")
    return Registered(
        subject,
        found["id"],
        version if isinstance(version, int) else None,
        guid if isinstance(guid, str) else None,
        _schema(found, sent),
    )


def _quoted(subject: str) -> str:
    return quote(subject, safe="")


def _query(**parameters: Any) -> str:
    """Parameters that are set; flags only when they are on."""
    given = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in parameters.items()
        if value is not None and value is not False
    }
    return f"?{urlencode(given)}" if given else ""
