"""Compatibility of schema versions: who can read whose data, and why not. Pure."""

from __future__ import annotations

from .levels import CompatibilityLevel, LevelVerdict, Version, can_read, check
from .verdict import Incompatibility, Policy

__all__ = [
    "CompatibilityLevel",
    "Incompatibility",
    "LevelVerdict",
    "Policy",
    "Version",
    "can_read",
    "check",
]
