"""A world in one process: machines, disks, a network and one clock, all from one seed.

Unmodified asyncio programs run on it; see ``World``. Standard library only, but for the ports it
implements: the broker's ``FileSystem`` (``SimDisk``) and the engine's ``Store`` (``SimStore``).
"""

from __future__ import annotations

from .disk import SimDisk
from .errors import HostDied, HostError, LivenessFailure, NothingScheduled, OutOfTime
from .host import Host, Step
from .loop import HostLoop
from .network import Connection, Network
from .patch import install
from .store import RocksSlot, SimSlot, SimStore
from .world import World

__all__ = [
    "Connection",
    "Host",
    "HostDied",
    "HostError",
    "HostLoop",
    "LivenessFailure",
    "Network",
    "NothingScheduled",
    "OutOfTime",
    "RocksSlot",
    "SimDisk",
    "SimSlot",
    "SimStore",
    "Step",
    "World",
    "install",
]
