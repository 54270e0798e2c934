"""Hypothesis strategies: records of a topic, inputs of an app, fault schedules.

Needs hypothesis, which onceward does not bring: ``pip install hypothesis``.
"""

from __future__ import annotations

from typing import Any

from ..app import App
from ..topic import Topic
from .faults import Fault, draw_plan
from .generate import generate_record, generate_value
from .written import input_topics

try:
    from hypothesis import strategies as st
except ImportError as error:
    raise ImportError(
        "onceward.streams.testing.strategies needs hypothesis: pip install hypothesis"
    ) from error

FAULTS_S = 1.5
"""Faults of a plan start within this many virtual seconds, while there is work."""


def records(topic_or_type: Any) -> st.SearchStrategy[Any]:
    """``(key, value)`` pairs of a topic, or values of a type.

    Drawing raises ConfigurationError for types that say too little.
    """
    rngs = st.randoms(use_true_random=False)
    if isinstance(topic_or_type, Topic):
        return rngs.map(lambda rng: generate_record(topic_or_type, rng))
    return rngs.map(lambda rng: generate_value(topic_or_type, rng))


def inputs(
    app: App, *, min_size: int = 0, max_size: int = 20
) -> st.SearchStrategy[dict[str, list[tuple[Any, Any]]]]:
    """Input for ``AppDriver.pipe_many`` or ``simulate``: topic -> (key, value) pairs.

    Sizes are per topic.
    """
    return st.fixed_dictionaries(
        {
            name: st.lists(records(topic), min_size=min_size, max_size=max_size)
            for name, topic in input_topics(app).items()
        }
    )


def fault_plans(
    *, workers: int = 3, duration_s: float = FAULTS_S
) -> st.SearchStrategy[list[Fault]]:
    """Fault plans for a simulated cluster of a broker and ``workers`` workers."""
    hosts = ["broker", *(f"worker-{number}" for number in range(workers)), "client"]
    return st.randoms(use_true_random=False).map(
        lambda rng: draw_plan(rng, hosts=hosts, duration_s=duration_s)
    )
