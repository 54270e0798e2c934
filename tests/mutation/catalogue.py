"""Every planted fault."""

from __future__ import annotations

from .in_broker_log import BROKER_LOG
from .in_client import CLIENT
from .in_coordinators import COORDINATORS
from .in_engine import ENGINE
from .in_registry import REGISTRY
from .in_sinks import SINKS
from .mutation import Mutation

_ALL: tuple[Mutation, ...] = (*ENGINE, *CLIENT, *BROKER_LOG, *COORDINATORS, *SINKS, *REGISTRY)

MUTATIONS: tuple[Mutation, ...] = tuple(each for each in _ALL if not each.covered_by)
"""Those the kit must catch."""

REDUNDANT: tuple[Mutation, ...] = tuple(each for each in _ALL if each.covered_by)
"""Those that do no harm alone, because something else does the same."""
