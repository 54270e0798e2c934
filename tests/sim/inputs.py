"""Inputs of the small apps."""

from __future__ import annotations

LINES = {
    "lines": [
        (None, text)
        for text in (
            "to be or not to be",
            "that is the question",
            "be that as it may",
            "to the sea",
        )
        * 4
    ]
}
WORDS = {"words": [(word, word) for word in ("to", "be", "or", "not", "to", "be") * 5]}
