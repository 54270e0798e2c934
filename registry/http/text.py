"""An answer that is not JSON: the bare text of a schema."""

from __future__ import annotations

from typing import NamedTuple


class Text(NamedTuple):
    """Sent as it is, in UTF-8."""

    text: str
