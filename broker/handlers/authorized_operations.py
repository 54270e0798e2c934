"""What a client may do with a resource, as bits of Kafka's ``AclOperation`` codes.

There are no ACLs: everything is allowed, and said only to clients that ask.
"""

from __future__ import annotations

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = 3, 4, 5, 6, 7, 8
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = 9, 10, 11, 12
_NOT_ASKED = -(2**31)


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


_TOPIC = _bits(
    _READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS
)
_GROUP = _bits(_READ, _DELETE, _DESCRIBE)
_CLUSTER = _bits(
    _CREATE,
    _ALTER,
    _DESCRIBE,
    _CLUSTER_ACTION,
    _DESCRIBE_CONFIGS,
    _ALTER_CONFIGS,
    _IDEMPOTENT_WRITE,
)


def topic_operations(asked: bool) -> int:
    return _TOPIC if asked else _NOT_ASKED


def group_operations(asked: bool) -> int:
    return _GROUP if asked else _NOT_ASKED


def cluster_operations(asked: bool) -> int:
    return _CLUSTER if asked else _NOT_ASKED
