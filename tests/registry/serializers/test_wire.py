"""The bytes in front of a payload: vectors recorded from confluent-kafka 2.16.1, and bad input."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward.registry.serializers.errors import Undecodable
from onceward.registry.serializers.wire import (
    guid_prefix,
    id_prefix,
    pack_indexes,
    prefix_of,
    schema_key,
    unpack_indexes,
    with_header_ids,
)


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ((0,), "00"),
        ((1,), "0202"),
        ((0, 0), "040000"),
        ((0, 0, 0), "06000000"),
    ],
)
def test_message_paths_are_those_of_confluent(path: tuple[int, ...], data: str) -> None:
    assert pack_indexes(path).hex() == data
    assert unpack_indexes(b"?" + bytes.fromhex(data), 1) == (path, 1 + len(data) // 2)


def test_the_long_form_of_the_first_message_is_read() -> None:
    assert unpack_indexes(b"\x02\x00\x08", 0) == ((0,), 2)


@given(st.lists(st.integers(0, 100_000), min_size=1, max_size=5))
def test_a_path_comes_back(path: list[int]) -> None:
    data = pack_indexes(path)
    assert unpack_indexes(data + b"rest", 0) == (tuple(path), len(data))


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x06\x02", b"\xff" * 12, b"\xfe\xff\xff\x7f"])
def test_bad_paths_are_refused(data: bytes) -> None:
    with pytest.raises(Undecodable):
        unpack_indexes(data, 0)


def test_prefixes_name_an_id_or_a_guid() -> None:
    guid = "095d71cf-1255-6b9d-5e33-0ad575b3df5d"
    assert id_prefix(4) == b"\x00\x00\x00\x00\x04"
    assert schema_key(prefix_of(id_prefix(4) + b"x")) == 4
    assert schema_key(prefix_of(guid_prefix(guid) + b"x")) == guid


@pytest.mark.parametrize(
    "data", [b"", b"\x00", b"\x00\x00\x00\x01", b"\x01" * 16, b"{}", b"\x02" * 9]
)
def test_what_names_no_schema_is_refused(data: bytes) -> None:
    with pytest.raises(Undecodable):
        prefix_of(data)


def test_an_id_in_a_header_comes_in_front_of_its_payload() -> None:
    found = with_header_ids(
        [b"payload", None, b"plain", b"other"],
        [[("h", b"\x01id")], [("h", b"\x01id")], [], [("another", b"x"), ("h", None)]],
        "h",
    )
    assert found == [b"\x01idpayload", None, b"plain", b"other"]
