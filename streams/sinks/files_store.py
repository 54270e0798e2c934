"""The object store a file sink writes to: a port, and S3 through s3fs."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ..errors import ConfigurationError
from .errors import SinkError, SinkUnavailable

_CONNECT_TIMEOUT_S: Final = 5
_CONNECTIONS: Final = 32
_CONFLICT: Final = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412"})
_PASSING: Final = frozenset(
    {"RequestTimeout", "OperationAborted", "SlowDown", "Throttling", "TooManyRequests", "429"}
)
_GONE: Final = frozenset({"NoSuchKey", "404"})


class Stored(NamedTuple):
    """An object's content, and a tag that another content has not."""

    data: bytes
    tag: str


class ObjectStore(ABC):
    """Whole objects by key. Every call is atomic and seen by all that begin later.

    Calls raise SinkUnavailable when nobody knows whether they were done, or SinkError; ``explain``
    is put before what they say.
    """

    explain: str = ""

    @abstractmethod
    async def get(self, key: str) -> Stored | None: ...

    @abstractmethod
    async def put(self, key: str, data: bytes) -> None:
        """Replaces what is there."""

    @abstractmethod
    async def put_if(self, key: str, data: bytes, tag: str | None) -> str | None:
        """Write if the object has ``tag``, or with None if there is none. Returns the new tag;
        None when another one was faster."""

    @abstractmethod
    async def copy(self, key: str, to: str) -> bool:
        """Within the store; replaces what is there. False when there is no such object."""

    @abstractmethod
    async def exists(self, key: str) -> bool: ...

    @abstractmethod
    async def delete(self, key: str) -> None:
        """Nothing when it is gone."""

    @abstractmethod
    async def keys(self, prefix: str) -> list[str]:
        """All that begin with it."""

    async def close(self) -> None:
        """Disconnect. It may be used again."""
        return


class S3Store(ObjectStore):
    """A bucket of S3, or of what answers like it. ``options``: those of ``s3fs.S3FileSystem``.

    A request that fails is not sent again here: whoever called knows what to do. Raises
    ConfigurationError.
    """

    def __init__(self, bucket: str, options: Mapping[str, Any], timeout: float) -> None:
        try:
            import aiohttp
            import s3fs  # type: ignore[import-untyped,import-not-found,unused-ignore]
            from botocore import exceptions  # type: ignore[import-untyped,import-not-found,unused-ignore]
            from botocore.parsers import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
                ResponseParserError,
            )
        except ImportError:
            raise ConfigurationError("files in S3 need s3fs: pip install 'onceward[s3]'") from None
        self._bucket = bucket
        self._s3fs: Any = s3fs
        self._silent: Any = (
            exceptions.ConnectionError,
            exceptions.HTTPClientError,
            exceptions.IncompleteReadError,
            ResponseParserError,
            aiohttp.ClientError,
            ConnectionError,
            TimeoutError,
        )
        self._expected: Any = (*self._silent, exceptions.BotoCoreError, OSError, ValueError)
        config = {
            "connect_timeout": min(_CONNECT_TIMEOUT_S, timeout),
            "read_timeout": timeout,
            "retries": {"total_max_attempts": 1},
            "max_pool_connections": _CONNECTIONS,
            **options.get("config_kwargs", {}),
        }
        self._options = {**options, "config_kwargs": config}
        self._files: Any = None
        self._session: Any = None
        self._connecting = asyncio.Lock()

    async def get(self, key: str) -> Stored | None:
        try:
            found = await self._call("get_object", Key=key)
            async with found["Body"] as body:
                return Stored(await body.read(), found["ETag"])
        except _NotThere:
            return None
        except self._expected as error:  # the connection ended within the body
            raise self._judged(error) from error

    async def put(self, key: str, data: bytes) -> None:
        await self._call("put_object", Key=key, Body=data)

    async def put_if(self, key: str, data: bytes, tag: str | None) -> str | None:
        condition = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}
        try:
            done = await self._call("put_object", Key=key, Body=data, **condition)
        except (_Conflict, _NotThere):
            return None
        return str(done["ETag"])

    async def copy(self, key: str, to: str) -> bool:
        source = {"Bucket": self._bucket, "Key": key}
        try:
            await self._call("copy_object", CopySource=source, Key=to)
        except _NotThere:
            return False
        return True

    async def exists(self, key: str) -> bool:
        try:
            await self._call("head_object", Key=key)
        except _NotThere:
            return False
        return True

    async def delete(self, key: str) -> None:
        await self._call("delete_object", Key=key)

    async def keys(self, prefix: str) -> list[str]:
        found: list[str] = []
        more: dict[str, Any] = {}
        while True:
            page = await self._call("list_objects_v2", Prefix=prefix, **more)
            found += [entry["Key"] for entry in page.get("Contents", ())]
            if not page.get("IsTruncated"):
                return found
            more = {"ContinuationToken": page["NextContinuationToken"]}

    async def close(self) -> None:
        session, self._session, self._files = self._session, None, None
        self._connecting = asyncio.Lock()  # the next one may be in another loop
        if session is not None:
            await session.close()

    async def _call(self, method: str, **arguments: Any) -> Any:
        try:
            async with self._connecting:
                if self._session is None:
                    self._files = self._s3fs.S3FileSystem(
                        asynchronous=True, skip_instance_cache=True, **self._options
                    )
                    self._files.retries = 1
                    self._session = await self._files.set_session()
            return await self._files._call_s3(method, Bucket=self._bucket, **arguments)
        except self._expected as error:
            raise self._judged(error) from error

    def _judged(self, error: Exception) -> Exception:
        """What an exception of botocore, or of s3fs around one, means."""
        response: Mapping[str, Any] = getattr(error.__cause__, "response", None) or {}
        code = str(response.get("Error", {}).get("Code", ""))
        status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        if code in _CONFLICT or status == 412:
            return _Conflict(code)
        if code in _GONE:
            return _NotThere(code)
        text = " ".join(str(error).split())
        if not response:
            kind = SinkUnavailable if isinstance(error, self._silent) else SinkError
            return kind(f"{self.explain}: {text or type(error).__name__}")
        said = f"{self.explain}: {text} ({code})"
        if code == "NoSuchBucket":
            return SinkError(f"{self.explain}: there is no bucket {self._bucket!r}")
        if code in _PASSING or status in (429, 500, 502, 503, 504):
            return SinkUnavailable(said)
        return SinkError(said)


class _NotThere(Exception):
    """There is no such object."""


class _Conflict(Exception):
    """The condition does not hold."""
