import pytest

from onceward.broker.errors import ProtocolError
from onceward.broker.protocol.primitives import (
    INLINE_LIMIT,
    append_records,
    read_uvarint,
    skip_tags,
    uvarint,
)
from onceward.broker.types import Buffer


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, b"\x00"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (300, b"\xac\x02"),
        (2**31 - 1, b"\xff\xff\xff\xff\x07"),
    ],
)
def test_an_unsigned_varint_has_its_low_bits_first(value: int, encoded: bytes) -> None:
    assert uvarint(value) == encoded
    assert read_uvarint(b"?" + encoded + b"rest", 1) == (value, 1 + len(encoded))


@pytest.mark.parametrize("encoded", [b"\xff\xff\xff\xff\x08", b"\xff" * 5 + b"\x01", b"\x80" * 9])
def test_a_varint_beyond_31_bits_is_refused(encoded: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_uvarint(encoded, 0)


def test_tags_are_skipped_to_the_byte_after_them() -> None:
    many = b"".join(uvarint(tag) + uvarint(2) + b"ab" for tag in range(200))
    section = uvarint(200) + many + b"next"
    assert section[skip_tags(section, 1, section[0], len(section)) :] == b"next"


def test_a_tag_that_reaches_beyond_the_end_is_refused() -> None:
    with pytest.raises(ProtocolError):
        skip_tags(b"\x01\x05\x04abc", 1, 1, 6)


def test_large_record_sets_go_by_reference_and_small_ones_are_copied() -> None:
    first = bytearray(b"head")
    out: list[Buffer] = []
    small = b"s" * INLINE_LIMIT
    assert append_records(first, out, (small,), len(small)) is first
    assert not out
    parts: list[Buffer] = [b"l" * INLINE_LIMIT, memoryview(b"tail")]
    following = append_records(first, out, parts, INLINE_LIMIT + 4)
    assert following == b""
    assert [id(buffer) for buffer in out] == [id(first), id(parts[0]), id(parts[1])]
