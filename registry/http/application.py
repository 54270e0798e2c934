"""The ASGI application: from bytes to a handler and back, whatever the bytes are.

Every answer that is not a success is ``{"error_code": N, "message": "..."}``.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..errors import NotLeader, RegistryError
from ..schemas.json_text import Json
from ..service import RegistryService
from .auth import REALM
from .call import Call, parse_query
from .forwarding import ForwardedAnswer, ForwardedRequest, Forwarder
from .media_types import CONSUMED, PRODUCED, chosen_type
from .openapi import openapi_document
from .router import Match, Route, Router
from .routes import ROUTES
from .text import Text

log = logging.getLogger("onceward.registry")

LEADER_UNKNOWN = 50004
OF_STATE = frozenset({42201, 42205, 42206, 42207, 42211})
"""Refusals with status 422 that are not about the request alone, or may not be."""
LEADER_PAUSE_S = 0.1

Authenticate = Callable[[str], Awaitable[None]]
"""Given the ``Authorization`` header, raises ``RegistryError`` 401 for who may not come in."""


class RegistryApp:
    """An instance that does not lead hands writes to the leader with ``forward``.

    While no leader is known a write waits ``leader_wait_s`` for one.
    """

    def __init__(
        self,
        service: RegistryService,
        *,
        forward: Forwarder | None = None,
        authenticate: Authenticate | None = None,
        max_body_bytes: int = 4_000_000,
        body_timeout_s: float = 30.0,
        leader_wait_s: float = 10.0,
    ) -> None:
        self._service = service
        self._router = Router(ROUTES)
        self._forward = forward
        self._authenticate = authenticate
        self._max_body = max_body_bytes
        self._body_timeout = body_timeout_s
        self._leader_wait = leader_wait_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "http":
            request = Request(scope, receive)
            try:
                response = await self._respond(request)
            except ClientDisconnect:
                return
            await response(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1003})

    async def _respond(self, request: Request) -> Response:
        content_type = PRODUCED[0]
        try:
            content_type = chosen_type(request.headers.get("accept"))
            return await self._answer(request, content_type)
        except RegistryError as error:
            return _error_response(error, content_type)

    async def _answer(self, request: Request, content_type: str) -> Response:
        if self._authenticate is not None:
            await self._authenticate(request.headers.get("authorization", ""))
        path = _raw_path(request.scope)
        if path == b"/openapi.json" and request.method in ("GET", "HEAD"):
            return _json_response(openapi_document(), "application/json")
        match = self._router.match(request.method, path)
        query = parse_query(request.scope.get("query_string", b""))
        body = await self._body(request)
        call = Call(
            request.method,
            match.parameters,
            query,
            body,
            match.context,
            self._service.machine.settings.behind_alias,
        )
        if match.route.writes:
            return await self._write(request, match, call, content_type)
        return _response(await self._answered(match.route, call), content_type)

    async def _body(self, request: Request) -> bytes:
        """Raises ``RegistryError`` 413, 408, 415."""
        if request.method in ("GET", "HEAD"):
            return b""
        declared = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        chunks, size = [], 0
        try:
            async with asyncio.timeout(self._body_timeout):
                async for chunk in request.stream():
                    size += len(chunk)
                    if size > self._max_body:
                        text = f"The body is larger than {self._max_body} bytes"
                        raise RegistryError(413, text)
                    chunks.append(chunk)
        except TimeoutError:
            raise RegistryError(408, "The body did not arrive in time") from None
        if size and declared and declared not in CONSUMED:
            raise RegistryError(415, "HTTP 415 Unsupported Media Type")
        return b"".join(chunks)

    async def _answered(self, route: Route, call: Call) -> Json | Text:
        """What a handler answers. It may refuse only what is refused by all that was written
        before: an instance may not know the latest, or that it leads no longer."""
        store = self._service.store
        position = store.position
        try:
            return await route.handler(self._service, call)
        except RegistryError as error:
            if not _depends_on_state(error):
                raise
            await store.catch_up()
            if store.position == position:
                raise
        return await route.handler(self._service, call)

    async def _write(
        self, request: Request, match: Match, call: Call, content_type: str
    ) -> Response:
        """Here if this instance leads, else by way of the one that does."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._leader_wait
        leadership = self._service.leadership
        while True:
            if leadership.is_self:
                try:
                    return _response(await self._answered(match.route, call), content_type)
                except NotLeader:
                    pass  # deposed; if it was written all the same, the next try finds it
            if "x-forward" in request.headers:
                raise NotLeader(None)  # it came from one that took this instance for the leader
            answer = await self._forwarded(request, call)
            if answer is not None:
                return Response(
                    answer.body,
                    answer.status,
                    {"content-type": answer.content_type or content_type},
                )
            remaining = deadline - loop.time()
            if remaining <= 0:
                raise NotLeader(None)
            await leadership.wait_for_change(min(remaining, LEADER_PAUSE_S))

    async def _forwarded(self, request: Request, call: Call) -> ForwardedAnswer | None:
        """None when no leader is known or it does not take the request for one of its own.

        What its answer is about has been read here before it is passed on.
        """
        leader = self._service.leadership.leader
        if leader is None or self._service.leadership.is_self or self._forward is None:
            return None
        target = _raw_path(request.scope).decode("latin-1")
        query = request.scope.get("query_string", b"").decode("latin-1")
        answer = await self._forward(
            leader.url,
            ForwardedRequest(
                request.method,
                f"{target}?{query}" if query else target,
                dict(request.headers),
                call.body,
            ),
        )
        if answer is None or _error_code(answer) == LEADER_UNKNOWN:
            return None
        if answer.status < 500:
            await self._service.store.catch_up()
        return answer


def _depends_on_state(error: RegistryError) -> bool:
    """Whether the answer might be another one for who knows more."""
    return error.code in OF_STATE or (error.code != 404 and error.status in (404, 409))


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        else:
            await send({"type": "lifespan.shutdown.complete"})
            return


def _raw_path(scope: Scope) -> bytes:
    """The path as it was sent, below the place this application is mounted at."""
    raw = scope.get("raw_path")
    path: bytes = raw if isinstance(raw, bytes) else str(scope["path"]).encode()
    return path.partition(b"?")[0].removeprefix(str(scope.get("root_path", "")).encode())


def _error_code(answer: ForwardedAnswer) -> int | None:
    if answer.status < 500:
        return None
    try:
        value = json.loads(answer.body)
    except ValueError:
        return None
    code = value.get("error_code") if isinstance(value, dict) else None
    return code if isinstance(code, int) else None


def _response(value: Json | Text, content_type: str) -> Response:
    if isinstance(value, Text):
        return Response(value.text.encode(), headers={"content-type": content_type})
    return _json_response(value, content_type)


def _json_response(
    value: Json, content_type: str, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # A schema another registry stored may hold half of a surrogate pair.
    data = body.encode(errors="replace")
    return Response(data, status, {"content-type": content_type, **(headers or {})})


def _error_response(error: RegistryError, content_type: str) -> Response:
    if error.status >= 500:
        log.warning("answered %d: %s", error.code, error.message)
    headers = {"www-authenticate": f'Basic realm="{REALM}"'} if error.status == 401 else None
    value: Json = {"error_code": error.code, "message": error.message}
    return _json_response(value, content_type, error.status, headers)
