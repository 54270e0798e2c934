"""Who may write: what an instance tells the others about itself, and how one is chosen.

The frames are those of Confluent's registry (``SchemaRegistryProtocol``): JSON as the metadata and
assignment of a group of protocol type ``sr``, protocol ``v0``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from .records import BadRecord, decode_object, encode_json
from .schemas.json_text import Json

PROTOCOL_TYPE = "sr"
PROTOCOL_NAME = "v0"
NO_ERROR = 0
DUPLICATE_URLS = 1
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Identity:
    """Where an instance answers, and whether it may lead."""

    host: str
    port: int
    scheme: str = "http"
    eligible: bool = True
    leading: bool = False

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def encode(self) -> bytes:
        return encode_json(self._members())

    def _members(self) -> dict[str, Json]:
        return {
            "version": _VERSION,
            "host": self.host,
            "port": self.port,
            "master_eligibility": self.eligible,
            "scheme": self.scheme,
            "leader": self.leading,
        }

    @classmethod
    def decode(cls, data: bytes) -> Identity:
        """Raises ``BadRecord``."""
        return _identity(decode_object(data))


def _identity(members: Mapping[str, Json]) -> Identity:
    host, port = members.get("host"), members.get("port")
    if not isinstance(host, str) or not isinstance(port, int):
        raise BadRecord("no host and port")
    scheme = members.get("scheme")
    return Identity(
        host,
        port,
        scheme if isinstance(scheme, str) else "http",
        members.get("master_eligibility") is not False,
        members.get("leader") is True,
    )


@dataclass(frozen=True, slots=True)
class Assignment:
    """What the group's leader told everybody: who writes."""

    error: int
    member_id: str
    identity: Identity | None

    def encode(self) -> bytes:
        identity = None if self.identity is None else self.identity._members()
        return encode_json(
            {
                "version": _VERSION,
                "error": self.error,
                "master": self.member_id or None,
                "master_identity": identity,
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> Assignment:
        """Raises ``BadRecord``."""
        members = decode_object(data)
        error, member_id = members.get("error"), members.get("master")
        identity = members.get("master_identity")
        return cls(
            error if isinstance(error, int) else NO_ERROR,
            member_id if isinstance(member_id, str) else "",
            _identity(identity) if isinstance(identity, dict) else None,
        )


def choose(members: Mapping[str, Identity]) -> Assignment:
    """The one that leads already, else the eligible one with the smallest URL.

    Two instances that answer at one URL would forward to each other for ever: an error.
    """
    if len({identity.url for identity in members.values()}) < len(members):
        return Assignment(DUPLICATE_URLS, "", None)
    eligible = [
        (not identity.leading, identity.url, member_id)
        for member_id, identity in members.items()
        if identity.eligible
    ]
    if not eligible:
        return Assignment(NO_ERROR, "", None)
    member_id = min(eligible)[2]
    return Assignment(NO_ERROR, member_id, members[member_id])


class Leadership(Protocol):
    """What the service knows of the election."""

    @property
    def is_self(self) -> bool:
        """This instance was chosen and has not heard otherwise."""

    @property
    def leader(self) -> Identity | None:
        """The instance that was chosen; None while nobody is known."""

    async def wait_for_change(self, timeout_s: float) -> None:
        """Returns when the leader may have changed, at the latest after the timeout."""

    def deposed(self) -> None:
        """The cluster refused a write of this instance: somebody else leads."""


class SoleInstance:
    """The leadership of an instance that is alone by arrangement."""

    def __init__(self, identity: Identity) -> None:
        self.leader: Identity | None = identity
        self.is_self = True

    async def wait_for_change(self, timeout_s: float) -> None:
        return

    def deposed(self) -> None:
        return
