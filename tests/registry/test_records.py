"""Keys as other registries write them, to the byte."""

from __future__ import annotations

import pytest

from onceward.registry.records import (
    BadRecord,
    ClearSubjectKey,
    ConfigKey,
    ContextKey,
    DeleteSubjectKey,
    IdLimitKey,
    Key,
    ModeKey,
    NoopKey,
    SchemaKey,
    decode_key,
    encode_key,
)

WRITTEN: list[tuple[Key, bytes]] = [
    (SchemaKey("s", 1), b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}'),
    (SchemaKey("å/b", 2), '{"keytype":"SCHEMA","subject":"å/b","version":2,"magic":1}'.encode()),
    (SchemaKey('"', 3), b'{"keytype":"SCHEMA","subject":"\\"","version":3,"magic":1}'),
    (ConfigKey("s"), b'{"keytype":"CONFIG","subject":"s","magic":0}'),
    (ConfigKey(""), b'{"keytype":"CONFIG","magic":0}'),
    (ModeKey("s"), b'{"keytype":"MODE","subject":"s","magic":0}'),
    (ModeKey(""), b'{"keytype":"MODE","magic":0}'),
    (DeleteSubjectKey("s"), b'{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}'),
    (ClearSubjectKey("s"), b'{"keytype":"CLEAR_SUBJECT","subject":"s","magic":0}'),
    (
        ContextKey("default", ".ctx"),
        b'{"keytype":"CONTEXT","tenant":"default","context":".ctx","magic":0}',
    ),
    (NoopKey(), b'{"keytype":"NOOP","magic":0}'),
    (IdLimitKey("."), b'{"keytype":"ID_LIMIT","context":".","magic":0}'),
]


@pytest.mark.parametrize(("key", "data"), WRITTEN)
def test_keys_are_written_byte_for_byte_and_read_back(key: Key, data: bytes) -> None:
    assert encode_key(key) == data
    assert decode_key(data) == key


@pytest.mark.parametrize(
    ("data", "key"),
    [
        (b'{"subject":"s","version":1,"magic":0,"keytype":"SCHEMA"}', SchemaKey("s", 1)),
        (b'{"keytype": "CONFIG", "subject": null, "magic": 0}', ConfigKey("")),
        (b'{"keytype":"MODE","subject":null,"magic":0}', ModeKey("")),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1,"x":2}', SchemaKey("s", 1)),
        (b'{"keytype":"ASSOC","tenant":"t"}', None),
    ],
)
def test_what_others_wrote_is_read(data: bytes, key: Key | None) -> None:
    assert decode_key(data) == key


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"keytype":"SCHEMA","subject":"s"}',
        b'{"keytype":"SCHEMA","subject":"s","version":0}',
        b'{"keytype":"SCHEMA","subject":5,"version":1}',
        b'{"keytype":"CONFIG","subject":5}',
        b"[" * 100_000,
    ],
)
def test_a_key_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(BadRecord):
        decode_key(data)
