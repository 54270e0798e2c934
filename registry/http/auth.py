"""Basic authentication against salted hashes, one user per line: ``name:scrypt$N$r$p$salt$hash``.

Salt and hash are base64. A hash is slow on purpose, so a pair that was right is remembered by a
digest for as long as the process runs.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..errors import RegistryError

SCHEME = "scrypt"
COST, BLOCK, PARALLEL = 2**14, 8, 1
MAX_COST, MAX_BLOCK, MAX_PARALLEL = 2**18, 32, 16
SALT_BYTES = 16
MAX_REMEMBERED = 10_000
REALM = "SchemaRegistry"


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """A hashed password and what it was hashed with."""

    cost: int
    block: int
    parallel: int
    salt: bytes
    digest: bytes

    @classmethod
    def of(cls, password: str, salt: bytes) -> PasswordHash:
        digest = _scrypt(password, salt, COST, BLOCK, PARALLEL)
        return cls(COST, BLOCK, PARALLEL, salt, digest)

    @classmethod
    def parse(cls, text: str) -> PasswordHash:
        """Raises ValueError."""
        scheme, *fields = text.split("$")
        if scheme != SCHEME or len(fields) != 5:
            raise ValueError("not scrypt$N$r$p$salt$hash")
        cost, block, parallel = (int(field) for field in fields[:3])
        if not (1 < cost <= MAX_COST and 0 < block <= MAX_BLOCK and 0 < parallel <= MAX_PARALLEL):
            raise ValueError("the parameters of the hash are out of range")
        try:
            salt, digest = (base64.b64decode(field, validate=True) for field in fields[3:])
        except binascii.Error:
            raise ValueError("salt and hash are not base64") from None
        return cls(cost, block, parallel, salt, digest)

    def __str__(self) -> str:
        salt, digest = (base64.b64encode(part).decode() for part in (self.salt, self.digest))
        return f"{SCHEME}${self.cost}${self.block}${self.parallel}${salt}${digest}"

    def matches(self, password: str) -> bool:
        """Slow: tens of milliseconds."""
        found = _scrypt(password, self.salt, self.cost, self.block, self.parallel)
        return hmac.compare_digest(found, self.digest)


def _scrypt(password: str, salt: bytes, cost: int, block: int, parallel: int) -> bytes:
    memory = 256 * cost * block + 1024 * 1024
    return hashlib.scrypt(
        password.encode(), salt=salt, n=cost, r=block, p=parallel, maxmem=memory, dklen=32
    )


def read_users(lines: Iterable[str]) -> dict[str, PasswordHash]:
    """Users by name; empty lines and ``#`` comments are allowed. Raises ValueError."""
    users = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, separator, hashed = text.partition(":")
        if not separator or not name:
            raise ValueError(f"line {number} is not NAME:HASH")
        try:
            users[name] = PasswordHash.parse(hashed)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    return users


class BasicAuth:
    """Knows who may come in."""

    def __init__(self, users: Mapping[str, PasswordHash]) -> None:
        self._users = dict(users)
        self._remembered: dict[bytes, None] = {}

    def is_remembered(self, header: str) -> bool:
        """Whether this ``Authorization`` header was right before."""
        return hashlib.sha256(header.encode()).digest() in self._remembered

    def check(self, header: str) -> None:
        """Raises ``RegistryError`` 401. Slow: not for the event loop."""
        name, password = _credentials(header)
        known = self._users.get(name)
        # An unknown name takes as long as a wrong password.
        stand_in = next(iter(self._users.values()), None)
        hashed = known or stand_in
        right = hashed is not None and hashed.matches(password)
        if known is None or not right:
            raise unauthorized()
        if len(self._remembered) >= MAX_REMEMBERED:
            self._remembered.clear()
        self._remembered[hashlib.sha256(header.encode()).digest()] = None


def _credentials(header: str) -> tuple[str, str]:
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        raise unauthorized()
    try:
        text = base64.b64decode(encoded.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        raise unauthorized() from None
    name, _, password = text.partition(":")
    return name, password


def unauthorized() -> RegistryError:
    return RegistryError(401, "Unauthorized")
