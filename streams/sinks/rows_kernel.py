"""What runs once per row: the compiled extension where it was built, ``rows_pure`` otherwise.

``ONCEWARD_PURE_PYTHON=1`` makes the extension refuse to load (it looks itself). Type checkers see
``rows_pure``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .rows_pure import RowMaker, encode, shape

    COMPILED: bool
else:
    try:
        from ._rows import RowMaker, encode, shape

        COMPILED = True
    except ImportError:
        from .rows_pure import RowMaker, encode, shape

        COMPILED = False

__all__ = ["COMPILED", "RowMaker", "encode", "shape"]
