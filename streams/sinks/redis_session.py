"""Connections to Redis on which nothing waits for ever, and what the server's errors mean."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from ..errors import ConfigurationError

try:
    from redis.asyncio import ConnectionPool, Redis
    from redis.asyncio.connection import parse_url
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import (
        AskError,
        AuthenticationError,
        AuthenticationWrongNumberOfArgsError,
        AuthorizationError,
        ClusterError,
        ConnectionError,
        MovedError,
        NoPermissionError,
        OutOfMemoryError,
        ReadOnlyError,
        RedisError,
        ResponseError,
        TimeoutError,
        TryAgainError,
    )
except ImportError as error:
    raise ImportError(f"RedisSink needs redis ({error}): pip install 'onceward[redis]'") from error

CONNECT_TIMEOUT_S: Final = 5.0
_DATABASE: Final = re.compile(r"/?|/\d+")
_FOR_GOOD: Final = (
    AuthenticationError,
    AuthenticationWrongNumberOfArgsError,
    AuthorizationError,
    NoPermissionError,
)
_PASSING: Final = (
    AskError,
    ClusterError,
    ConnectionError,
    OSError,
    OutOfMemoryError,
    ReadOnlyError,
    TimeoutError,
    TryAgainError,
)
_PASSING_REPLY: Final = re.compile(
    r"(ASK|BUSY|CLUSTERDOWN|LOADING|MASTERDOWN|MISCONF|NOREPLICAS|READONLY|TRYAGAIN|UNBLOCKED) "
    r"|.*Script killed by user",
    re.DOTALL,
)
"""Codes of errors for which clients have no class, or older ones not yet."""
_MOVED: Final = re.compile(r"MOVED \d+ (.*):(\d+)")
_CONFIGURED: Final = ("appendfsync", "proto-max-bulk-len")


class Address:
    """Where a URL leads; raises ConfigurationError when it cannot be parsed.

    What is wrong with it may be part of the password, so it is not shown.
    """

    def __init__(self, url: str, sink: str) -> None:
        self._url = url
        try:
            self._options: Mapping[str, Any] = parse_url(url)
            if not _DATABASE.fullmatch(urlsplit(url).path) and "path" not in self._options:
                raise ValueError("another path is taken for database 0")
            self._pool(None).make_connection()
        except (ValueError, TypeError):
            raise ConfigurationError(
                f"sink {sink!r}: the URL cannot be parsed (it is not shown, as it may hold a "
                "password); one looks like redis://user:password@host:6379/0, and with TLS "
                "rediss://..."
            ) from None

    def __str__(self) -> str:
        """The address without password."""
        get = self._options.get
        user = f"{get('username')}@" if get("username") else ""
        database = get("db") or 0
        if get("path"):
            return f"unix://{user}{get('path')}?db={database}"
        scheme = "rediss" if self._url.startswith("rediss") else "redis"
        return f"{scheme}://{user}{get('host', 'localhost')}:{get('port', 6379)}/{database}"

    def scrub(self, text: str) -> str:
        """``text`` in one line, without the password."""
        password = self._options.get("password")
        if password:
            text = text.replace(str(password), "***")
        return " ".join(text.split())

    def connect(self, node: tuple[str, int] | None) -> Any:
        """A client that repeats nothing by itself; connects when it is used. ``node`` of a cluster,
        if it is not the one in the URL."""
        return Redis(connection_pool=self._pool(node))

    def _pool(self, node: tuple[str, int] | None) -> Any:
        pool = ConnectionPool.from_url(
            self._url,
            protocol=2,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=None,
            socket_connect_timeout=CONNECT_TIMEOUT_S,
        )
        options = pool.connection_kwargs
        options["decode_responses"] = False
        if "path" not in options:
            options["socket_keepalive"] = True
        if node is not None:
            options["host"], options["port"] = node
        return pool


def found(error: Exception) -> Exception | None:
    """What the client library or the network says; None if the exception is not theirs.

    What the server answers to the client's greeting is in a ConnectionError.
    """
    if not isinstance(error, RedisError | OSError):
        return None
    cause = error.__cause__ if type(error) is ConnectionError else None
    return cause if isinstance(cause, RedisError) else error


def moved_to(error: Exception) -> tuple[str, int] | None:
    """Host and port of the cluster's node that has the slot, if the error says so."""
    if isinstance(error, MovedError):
        return str(error.host), int(error.port)
    text = _MOVED.match(str(error)) if isinstance(error, ResponseError) else None
    return None if text is None else (text[1], int(text[2]))


def is_passing(error: Exception) -> bool:
    """Whether the server may take the same thing a little later; or nobody knows what it did."""
    if isinstance(error, _FOR_GOOD) or "CERTIFICATE_VERIFY_FAILED" in str(error):
        return False
    if isinstance(error, _PASSING):
        return True
    return isinstance(error, ResponseError) and bool(_PASSING_REPLY.match(str(error)))


def reason(error: Exception) -> str:
    """An error in one sentence."""
    text = str(error)
    return f"{type(error).__name__}: {text if len(text) <= 1000 else text[:1000] + '...'}"


def is_new_enough(version: str) -> bool:
    """Whether scripts may say what they need (``#!lua``), and ask what they may do: Redis 7.0."""
    return [int(number) for number in re.findall(r"\d+", version)[:1]] >= [7]


async def configured(client: Any) -> dict[str, str]:
    """Settings that INFO does not tell; empty where CONFIG is not allowed, as in hosted servers."""
    try:
        found = await client.config_get(*_CONFIGURED)
    except ResponseError:
        return {}
    return {_str(name): _str(value) for name, value in found.items()}


def _str(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
