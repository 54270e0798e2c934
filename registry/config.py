"""Settings of a registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .compatibility import CompatibilityLevel
from .http.auth import PasswordHash
from .schemas import Limits


@dataclass(frozen=True, slots=True)
class RegistryConfig:
    """Addresses are host and port; port 0 takes a free one. Times are seconds.

    ``advertised`` is how other instances reach this one; None: as it listens. ``users`` empty: no
    authentication. ``certificate`` and ``key`` are files and make it HTTPS; ``authority`` is the
    file that other instances' certificates are checked with, None: the system's.
    """

    host: str = "127.0.0.1"
    port: int = 8081
    advertised: tuple[str, int] | None = None
    topic: str = "_schemas"
    replication_factor: int | None = None
    group_id: str = "schema-registry"
    session_timeout: float = 10.0
    """After which an instance that is not heard of is taken for dead."""
    eligible: bool = True
    default_level: CompatibilityLevel = CompatibilityLevel.BACKWARD
    users: Mapping[str, PasswordHash] = field(default_factory=dict)
    certificate: str | None = None
    key: str | None = None
    authority: str | None = None
    limits: Limits = field(default_factory=Limits)
    max_body_bytes: int = 4_000_000
    check_time_limit: float = 10.0
    leader_timeout: float = 30.0
    """How long the start waits until it is known who writes."""
    write_patience: float = 10.0
    """How long a write waits while it is not known who writes."""
