"""Reading files: which, in what order, from where on, and whether they are still the same.

Files are read one after the other in the order of their names, and looked for again every ``watch``
seconds (None: the source ends when it has read what is there). The position of a file is its name
(relative to the fixed part of the pattern), how far it is read, its size, and checksums of the
first bytes and of those before that place. A file that is read to its end stays known for ever,
whether it is there or not: a directory that is unmounted for a moment must not be read anew.

A file is complete when it appears: write it elsewhere and rename it into place. One that is read to
its end and has another size later is refused, and so is one whose read part has changed; what is
not read yet may be corrected. With ``grows=True`` files may be
appended to, and a last line counts once it ends with a newline; files must not be rotated then.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from ..errors import ConfigurationError
from .errors import SourceError
from .filesystem import Found, InputFile, is_pattern, listing, size_of
from .objects import Objects
from .rows import Rows
from .source import Given, Reader, Split

logger = logging.getLogger(__name__)

LONGEST_ROW = 16 * 1024 * 1024
_TAIL = 256


class Place(NamedTuple):
    """How far a file is read: bytes (rows in Parquet), and lines for messages. ``tail``: length and
    CRC-32 of the bytes before, none where that cannot be told."""

    offset: int = 0
    line: int = 0
    tail: tuple[int, int] = (0, 0)


class Files(Reader):
    """What readers of files have in common. ``pattern``: a path, a directory, or with ``*``, ``?``,
    ``[...]`` and ``**``.

    ``watch`` in seconds. With ``splits`` files are spread over them by a hash of their names. A
    pattern may be a URL (``s3://bucket/in/*.csv`` with extra ``s3``, or another one that fsspec
    has a driver for; ``storage_options`` are the driver's): each file is copied to a temporary one
    first, and may not be replaced by another. Raises ConfigurationError.
    """

    can_split = True
    may_grow: ClassVar[bool] = True
    counts_bytes: ClassVar[bool] = True
    """Whether places are offsets in the file."""

    def __init__(
        self,
        pattern: str | Path,
        *,
        watch: float | None = 1.0,
        grows: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.pattern = str(pattern)
        self.watch = watch
        self.grows = grows
        self._objects: Objects | None = None
        if "://" in self.pattern:
            if grows:
                raise ConfigurationError(f"{self.describe()} cannot grow: its objects are replaced")
            self._objects = Objects(self.pattern, storage_options or {})
        elif storage_options is not None:
            raise ConfigurationError(f"{self.describe()}: storage_options= is for URLs")
        if watch is not None and watch <= 0:
            raise ConfigurationError("watch must be more than 0 seconds, or None")
        if grows and not self.may_grow:
            raise ConfigurationError(f"{self.describe()} cannot grow")

    def describe(self) -> str:
        return f"{type(self).__name__} {self.pattern}"

    @abstractmethod
    def chunks(self, file: InputFile, place: Place, split: Split) -> Iterator[tuple[Rows, Place]]:
        """Rows of an open file from ``place`` on, to its end, each with the place behind it."""

    async def read(self, split: Split) -> Given:
        is_first = True
        while True:
            if self._objects is None:
                matching = listing(self.pattern)
            else:
                matching = await self._objects.listing()
            if is_first and not matching and not split.positions:
                self._say_nothing_matches()
            is_first = False
            for found in matching:
                if zlib.crc32(found.name.encode()) % split.count != split.number:
                    continue
                if not self._has_more(found, split):
                    continue
                copy = None if self._objects is None else await self._objects.fetch(found)
                with InputFile(found.path, copy) as file:
                    for rows in self._rows_of(file, found.name, split):
                        yield rows
            if self.watch is None:
                return
            await asyncio.sleep(self.watch)

    def _say_nothing_matches(self) -> None:
        if self.watch is None and not is_pattern(self.pattern):
            raise SourceError(f"{self.describe()}: there is no such file")
        logger.warning("%s: there is no such file yet", self.describe())

    def _rows_of(self, file: InputFile, name: str, split: Split) -> Iterator[Rows]:
        known = split.positions.get(name)
        if file.is_compressed and self.grows:
            raise SourceError(f"{file.path} is compressed, so it cannot grow")
        start = Place() if known is None else self._same(file, known)
        place = start
        for rows, place in self.chunks(file, start, split):
            rows.part = name
            rows.position = self._position(file, place, is_done=False)
            yield rows
        if not self.grows:
            self._must_have_stayed(file)
            position = self._position(file, place, is_done=True)
            yield Rows(position, (), part=name)

    def _has_more(self, found: Found, split: Split) -> bool:
        known = split.positions.get(found.name)
        if known is None:
            return True
        size = size_of(found.path) if found.size is None else found.size
        if size is None:
            return False
        if self.grows:
            if size < known["offset"]:
                raise _refused(found.path, f"has {size} bytes, but {known['offset']} were read")
            return bool(size > known["offset"])
        may_differ = self.counts_bytes and not known["done"]
        if size != known["size"] and not may_differ:
            raise _refused(found.path, f"has {size} bytes, but had {known['size']}")
        return not known["done"]

    def _same(self, file: InputFile, known: Mapping[str, Any]) -> Place:
        """The place to go on from, in a file that must be the one that was read before."""
        length, crc = known["head"]
        if file.head(length) != (length, crc):
            raise _refused(file.path, "begins with other bytes")
        place = Place(known["offset"], known["line"], tuple(known["tail"]))
        length, crc = place.tail
        if length:
            file.seek(place.offset - length)
            if zlib.crc32(file.read(length)) != crc:
                raise _refused(file.path, f"has other bytes before offset {place.offset}")
        return place

    def _must_have_stayed(self, file: InputFile) -> None:
        size = file.size_now()
        if size != file.size:
            raise _refused(file.path, f"went from {file.size} to {size} bytes while it was read")

    def _position(self, file: InputFile, place: Place, *, is_done: bool) -> dict[str, Any]:
        read_only = self.counts_bytes and not file.is_compressed
        return {
            "offset": place.offset,
            "line": place.line,
            "tail": list(place.tail),
            "size": file.size,
            "head": list(file.head(place.offset if read_only else None)),
            "done": is_done,
        }


class Parser(Protocol):
    """Turns the lines of one file into rows."""

    def parse(self, text: Text) -> tuple[Rows, int]:
        """Rows of these lines, and how many bytes at their end belong to a row that is not whole
        yet: 0 when ``text.is_last``."""


class TextFiles(Files):
    """Files of lines, read ``chunk_bytes`` at once: so much, about, is one chunk of rows."""

    chunk_bytes: ClassVar[int] = 256 * 1024

    @abstractmethod
    def parser(self, file: InputFile, split: Split) -> tuple[Parser, Place] | None:
        """A parser of ``file``, and where its rows begin; None when that cannot be told yet."""

    def chunks(self, file: InputFile, place: Place, split: Split) -> Iterator[tuple[Rows, Place]]:
        made = self.parser(file, split)
        if made is None:
            return
        parser, start = made
        place = max(place, start)
        before = min(_TAIL, place.offset)
        file.seek(place.offset - before)
        tail = file.read(before)
        rest = b""
        is_last = False
        while not is_last:
            data = file.read(self.chunk_bytes)
            if not data and (self.grows or not rest):
                return
            is_last = not data
            rest += data
            end = len(rest) if is_last else rest.rfind(b"\n") + 1
            if end:
                rows, unfinished = parser.parse(Text(rest[:end], file.path, place.line, is_last))
                end -= unfinished
            if end:
                lines = rest.count(b"\n", 0, end) + (is_last and not rest.endswith(b"\n"))
                tail = (tail + rest[max(0, end - _TAIL) : end])[-_TAIL:]
                place = Place(place.offset + end, place.line + lines, (len(tail), zlib.crc32(tail)))
                rest = rest[end:]
                yield rows, place
            if len(rest) > LONGEST_ROW:
                raise SourceError(
                    f"{file.path} line {place.line + 1}: the row that begins here is longer than "
                    f"{LONGEST_ROW} bytes; is it cut off by a missing quote or newline?"
                )


class Text(NamedTuple):
    """Whole lines of a file; ``line`` is how many come before them."""

    data: bytes
    path: str
    line: int
    is_last: bool

    def place(self, index: int) -> str:
        """Of the line with this index."""
        return f"{self.path} line {self.line + index + 1}"


def _refused(path: str, what: str) -> SourceError:
    return SourceError(
        f"{path} {what}: it is not the file that was read before. Give new rows in new files "
        "(renamed into place when they are complete), or say grows=True if files are appended to"
    )
