"""Frames: an int32 size and that many bytes."""

from __future__ import annotations

from ..errors import ProtocolError
from ..types import Buffer


class FrameDecoder:
    """Cuts a byte stream into frames, however it was chopped on the way.

    Memory held is what was received, never what a size prefix promises. After a ProtocolError the
    stream cannot be resynchronised and the decoder must be thrown away, with the connection.
    """

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._prefix = b""
        self._missing = -1  # bytes of the current frame still to come; -1 while reading its size
        self._chunks: list[bytes] = []
        self._held = 0

    @property
    def buffered(self) -> int:
        """Bytes received that are not part of a returned frame."""
        return self._held

    def feed(self, data: Buffer) -> list[bytes]:
        """The frames that ``data`` completes, without their sizes.

        Raises ProtocolError for a size that is negative or above the limit; frames completed by
        the same call are lost then, as the connection is.
        """
        if self._missing < 0 and not self._prefix and len(data) >= 4:
            size = int.from_bytes(data[:4], "big", signed=True)
            if size == len(data) - 4 <= self._max_size:
                return [bytes(data[4:])]  # one whole frame, as most often
        frames: list[bytes] = []
        view = memoryview(data)
        position, end = 0, len(view)
        while position < end:
            if self._missing < 0:
                taken = bytes(view[position : position + 4 - len(self._prefix)])
                self._prefix += taken
                self._held += len(taken)
                position += len(taken)
                if len(self._prefix) < 4:
                    break
                self._missing = self._frame_size()
            stop = min(end, position + self._missing)
            chunk = bytes(view[position:stop])
            self._missing -= len(chunk)
            self._held += len(chunk)
            position = stop
            if self._missing:
                self._chunks.append(chunk)
            else:
                frames.append(b"".join([*self._chunks, chunk]) if self._chunks else chunk)
                self._prefix, self._missing, self._held = b"", -1, 0
                self._chunks.clear()
        return frames

    def _frame_size(self) -> int:
        size = int.from_bytes(self._prefix, "big", signed=True)
        if not 0 <= size <= self._max_size:
            raise ProtocolError(f"a frame of {size} bytes, where 0 to {self._max_size} are allowed")
        return size
