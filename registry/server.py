"""A running registry: composition root of the service, and its HTTP server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Self, TypeVar

import uvicorn

from onceward.broker.client import Client

from .checking import Checker
from .config import RegistryConfig
from .election import Election
from .errors import RegistryError
from .http.application import RegistryApp
from .http.auth import BasicAuth, unauthorized
from .http.forwarding import HttpForwarder
from .leadership import Identity
from .schema_registry import SchemaRegistry
from .service import RegistryService
from .store import SchemaStore

log = logging.getLogger("onceward.registry")

R = TypeVar("R")

Bind = Callable[[str, int], socket.socket]
"""Given host and port (0: a free one), a socket that is bound to them. Raises OSError."""

CHECK_THREADS = 2
GRACE_S = 3
HEADER_BYTES = 64 * 1024


def bound_socket(host: str, port: int) -> socket.socket:
    """A listening TCP socket of this machine. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family)
    # asyncio turns Nagle's delay off only for sockets that say they are TCP, which this one does
    # not; connections take it from the listener. Head and body of an answer are two writes.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setblocking(False)
    return listener


class _Server(uvicorn.Server):
    """Leaves signals to whoever runs the loop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Registry:
    """``async with Registry(client, config)``: serves while it is open.

    ``client`` is started and closed by the caller. ``bind``: where sockets come from.
    """

    def __init__(
        self, client: Client, config: RegistryConfig, *, bind: Bind = bound_socket
    ) -> None:
        self._client = client
        self._config = config
        self._threads = ThreadPoolExecutor(CHECK_THREADS, "registry-check")
        self._bind = bind
        self._auth = BasicAuth(config.users) if config.users else None
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._taking_over: asyncio.Task[None] | None = None
        self.machine = SchemaRegistry(default_level=config.default_level, limits=config.limits)
        self.store = SchemaStore(
            client,
            self.machine.replay,
            topic=config.topic,
            replication_factor=config.replication_factor,
        )
        self._election: Election | None = None
        self._service: RegistryService | None = None
        self.address = ("", 0)
        """Host and port where it answers, once started."""

    @property
    def url(self) -> str:
        return Identity(*self.address, self._scheme).url

    @property
    def _scheme(self) -> str:
        return "https" if self._config.certificate else "http"

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Returns when clients may come: everything read, and known who writes.

        Raises ``KafkaError``, ``RegistryError``, OSError when the address is taken.
        """
        await self.store.start()
        listener = self._bind(self._config.host, self._config.port)
        self.address = self._config.host, listener.getsockname()[1]
        session_ms = int(self._config.session_timeout * 1000)
        self._election = Election(
            self._client,
            self._identity(),
            group_id=self._config.group_id,
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=session_ms // 10,
            rebalance_timeout_ms=session_ms,
            on_change=self._on_leader,
        )
        checker = Checker(
            self._offload, self._config.limits, time_limit_s=self._config.check_time_limit
        )
        self._service = RegistryService(self.machine, self.store, self._election, checker)
        await self._serve(self._service, listener)
        await self._election.start()
        await self._until_led(self._election)

    def _identity(self) -> Identity:
        host, port = self._config.advertised or self.address
        return Identity(host, port or self.address[1], self._scheme, self._config.eligible)

    async def _serve(self, service: RegistryService, listener: socket.socket) -> None:
        config = self._config
        tls = ssl.create_default_context(cafile=config.authority) if config.authority else None
        app = RegistryApp(
            service,
            forward=HttpForwarder(tls=tls),
            authenticate=None if self._auth is None else self._authenticate,
            max_body_bytes=config.max_body_bytes,
            leader_wait_s=config.write_patience,
        )
        server = _Server(
            uvicorn.Config(
                app,
                access_log=False,
                log_config=None,
                lifespan="off",
                server_header=False,
                h11_max_incomplete_event_size=HEADER_BYTES,
                timeout_graceful_shutdown=GRACE_S,
                ssl_certfile=config.certificate,
                ssl_keyfile=config.key,
            )
        )
        server.config.load()  # a bad certificate shows here
        self._server = server
        self._serving = asyncio.create_task(server.serve([listener]), name="registry http")

    async def _until_led(self, election: Election) -> None:
        """Until it is known who writes; if that is this instance, until it can."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._config.leader_timeout
        while election.leader is None and (remaining := deadline - loop.time()) > 0:
            await election.wait_for_change(remaining)
        if election.leader is None:
            log.warning("it is not known yet which registry writes; reads are served")
        if self._taking_over is not None:
            await asyncio.gather(self._taking_over, return_exceptions=True)

    def _on_leader(self) -> None:
        """Write nothing any more, or begin to: before the first request that needs it."""
        self._taking_over = asyncio.create_task(self._change_role())

    async def _change_role(self) -> None:
        assert self._service is not None
        try:
            await self._service.change_role()
        except RegistryError as error:
            log.warning("beginning to write failed, the next write tries again: %s", error)

    async def _offload(self, work: Callable[[], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _authenticate(self, header: str) -> None:
        auth = self._auth
        if auth is None or auth.is_remembered(header):
            return
        if not header:
            raise unauthorized()
        await self._offload(lambda: auth.check(header))

    async def wait_failed(self) -> None:
        """Returns when the HTTP server ended; raises what ended the reader of the topic or the
        election: a fault of ours."""
        assert self._serving is not None and self._election is not None
        ends = [
            asyncio.shield(self._serving),
            asyncio.create_task(self.store.wait_failed()),
            asyncio.create_task(self._election.wait_failed()),
        ]
        try:
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for end in done:
                end.result()
        finally:
            for end in ends[1:]:
                end.cancel()

    async def stop(self) -> None:
        """Finish what is under way, let another instance write, stop. Idempotent."""
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await asyncio.gather(self._serving, return_exceptions=True)
        if self._service is not None:
            await self._service.close()
        await self.store.finish()
        if self._election is not None:
            await self._election.stop()
        if self._taking_over is not None:
            self._taking_over.cancel()
            await asyncio.gather(self._taking_over, return_exceptions=True)
        await self.store.stop()
        self._threads.shutdown(wait=False, cancel_futures=True)
