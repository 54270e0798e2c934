"""Files in an object store, or wherever else fsspec leads: listed there, and copied to a temporary
file before they are read, in another thread, as a network may take its time."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Final

from ..errors import ConfigurationError
from .errors import SourceError, SourceUnavailable
from .filesystem import Found, is_wild, root_of

_CHUNK_BYTES: Final = 8 * 1024 * 1024


class Objects:
    """``pattern``: a URL such as ``s3://bucket/in/*.csv``; ``options``: those of its fsspec file
    system. Raises ConfigurationError, SourceError, SourceUnavailable."""

    def __init__(self, pattern: str, options: Mapping[str, Any]) -> None:
        protocol = pattern.partition("://")[0]
        try:
            from fsspec.core import url_to_fs  # type: ignore[import-untyped,import-not-found,unused-ignore]
        except ImportError:
            raise ConfigurationError(
                f"files at {protocol}:// need fsspec; for S3 pip install 'onceward[s3]'"
            ) from None
        self._pattern = pattern
        self._url_to_fs = url_to_fs
        self._options = {"use_listings_cache": False, "skip_instance_cache": True, **options}
        self._opened: tuple[Any, str] | None = None

    async def listing(self) -> list[Found]:
        """What matches, in the order of names. A directory stands for all files in it."""
        return await asyncio.to_thread(self._listing)

    async def fetch(self, found: Found) -> BinaryIO:
        """The whole file, here."""
        return await asyncio.to_thread(self._fetch, found)

    def _listing(self) -> list[Found]:
        try:
            system, path = self._system()
            if not is_wild(path):
                path = f"{path}/*" if system.isdir(path) else path
            known = system.glob(path, detail=True)
        except Exception as error:  # whatever the driver raises
            raise _explained(self._pattern, error) from error
        root = root_of(path)
        return sorted(
            Found(
                str(PurePosixPath(name).relative_to(root)),
                system.unstrip_protocol(name),
                info["size"],
            )
            for name, info in known.items()
            if info["type"] == "file"
        )

    def _fetch(self, found: Found) -> BinaryIO:
        copy = tempfile.TemporaryFile()  # noqa: SIM115 - the caller's
        try:
            system, _ = self._system()
            with system.open(found.path, "rb") as source:
                shutil.copyfileobj(source, copy, _CHUNK_BYTES)
            copy.flush()
            copy.seek(0)
        except Exception as error:
            copy.close()
            raise _explained(found.path, error) from error
        return copy

    def _system(self) -> tuple[Any, str]:
        if self._opened is None:
            self._opened = self._url_to_fs(self._pattern, **self._options)
        return self._opened


def _explained(url: str, error: Exception) -> SourceError | SourceUnavailable:
    text = " ".join(str(error).split())
    if isinstance(error, PermissionError):
        return SourceError(f"{url} may not be read: {text}")
    if isinstance(error, ImportError | ValueError | TypeError):
        return SourceError(f"{url}: {text}")
    return SourceUnavailable(f"{url}: {text or type(error).__name__}")
