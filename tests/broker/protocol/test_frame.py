import random

import pytest

from onceward.broker.errors import ProtocolError
from onceward.broker.protocol.frame import FrameDecoder


def framed(*payloads: bytes) -> bytes:
    return b"".join(len(payload).to_bytes(4, "big") + payload for payload in payloads)


def test_frames_do_not_depend_on_how_the_stream_was_chopped() -> None:
    rng = random.Random(7)
    payloads = [rng.randbytes(rng.choice([0, 1, 3, 4, 5, 100, 3000])) for _ in range(60)]
    stream = framed(*payloads)
    for longest in (1, 2, 3, 5, 64, 1000, len(stream)):
        decoder = FrameDecoder(5000)
        frames: list[bytes] = []
        position = 0
        while position < len(stream):
            size = rng.randint(1, longest)
            frames += decoder.feed(memoryview(stream)[position : position + size])
            position += size
        assert frames == payloads
        assert decoder.buffered == 0


def test_buffered_counts_the_bytes_of_the_unfinished_frame() -> None:
    decoder = FrameDecoder(100)
    assert decoder.feed(framed(b"one") + b"\x00\x00") == [b"one"]
    assert decoder.buffered == 2
    assert decoder.feed(b"\x00\x05ab") == []
    assert decoder.buffered == 6
    assert decoder.feed(b"cde") == [b"abcde"]
    assert decoder.buffered == 0


def test_a_reused_receive_buffer_does_not_change_what_was_fed() -> None:
    decoder = FrameDecoder(100)
    received = bytearray(framed(b"hello")[:6])
    decoder.feed(received)
    received[:] = b"?" * len(received)
    assert decoder.feed(b"llo") == [b"hello"]


def test_a_frame_of_the_maximum_size_passes_and_one_byte_more_does_not() -> None:
    assert FrameDecoder(5).feed(framed(b"12345")) == [b"12345"]
    with pytest.raises(ProtocolError):
        FrameDecoder(5).feed(framed(b"123456"))


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(ProtocolError):
        FrameDecoder(5).feed(b"\xff\xff\xff\xff")
