"""The steps of every record: the compiled extension where it was built, ``pure`` otherwise.

Both have the same names and the same behaviour; tests hold them equal. The environment variable
``ONCEWARD_PURE_PYTHON=1`` makes the extension refuse to load (it looks itself). Type checkers see
``pure``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .pure import ABSENT, CURRENT, SCALARS, Snapshot

if TYPE_CHECKING:
    from .pure import (
        EffectLists,
        FeedState,
        OutputLists,
        OutputTopics,
        Overlay,
        SinkWrite,
        SlotState,
        TableAccess,
        TopicSend,
        values,
    )

    COMPILED: bool
else:
    try:
        from ._kernel import (
            EffectLists,
            FeedState,
            OutputLists,
            OutputTopics,
            Overlay,
            SinkWrite,
            SlotState,
            TableAccess,
            TopicSend,
            values,
        )

        COMPILED = True
    except ImportError:
        from .pure import (
            EffectLists,
            FeedState,
            OutputLists,
            OutputTopics,
            Overlay,
            SinkWrite,
            SlotState,
            TableAccess,
            TopicSend,
            values,
        )

        COMPILED = False

__all__ = [
    "ABSENT",
    "COMPILED",
    "CURRENT",
    "SCALARS",
    "EffectLists",
    "FeedState",
    "OutputLists",
    "OutputTopics",
    "Overlay",
    "SinkWrite",
    "SlotState",
    "Snapshot",
    "TableAccess",
    "TopicSend",
    "values",
]
