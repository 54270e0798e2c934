"""The test kit: drive an app by hand, run it on a small cluster, or prove it under faults.

Names are imported when they are used, so that a pytest run that uses none pays for none.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .clients import simulate_broker
    from .crash import MatrixReport, crash_matrix
    from .driver import AppDriver, DriverError
    from .expectation import NotDeterministic, ReferenceFailed
    from .faults import Fault
    from .history import Anomaly, History
    from .local import LocalCluster
    from .processes import ProcessReport, verify_processes
    from .records import OutputRecord
    from .simulation import Outcome
    from .verification import AnomalyFound, Report, simulate

_HOMES: Final = {
    "Anomaly": "history",
    "Fault": "faults",
    "History": "history",
    "AppDriver": "driver",
    "DriverError": "driver",
    "LocalCluster": "local",
    "OutputRecord": "records",
    "AnomalyFound": "verification",
    "MatrixReport": "crash",
    "NotDeterministic": "expectation",
    "Outcome": "simulation",
    "ProcessReport": "processes",
    "ReferenceFailed": "expectation",
    "Report": "verification",
    "crash_matrix": "crash",
    "simulate": "verification",
    "simulate_broker": "clients",
    "verify_processes": "processes",
}

__all__ = [
    "Anomaly",
    "AnomalyFound",
    "AppDriver",
    "DriverError",
    "Fault",
    "History",
    "LocalCluster",
    "MatrixReport",
    "NotDeterministic",
    "Outcome",
    "OutputRecord",
    "ProcessReport",
    "ReferenceFailed",
    "Report",
    "crash_matrix",
    "simulate",
    "simulate_broker",
    "verify_processes",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{home}", __name__), name)
