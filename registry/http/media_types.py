"""Content types: what is taken, and what is sent for an ``Accept`` header."""

from __future__ import annotations

from ..errors import RegistryError

PRODUCED = (
    "application/vnd.schemaregistry.v1+json",
    "application/vnd.schemaregistry+json",
    "application/json",
)
CONSUMED = (*PRODUCED, "application/octet-stream")
_MAX_RANGES = 50
_ANYTHING = ("", "*", "*/*", "application/*", "text/html")


def chosen_type(accept: str | None) -> str:
    """The type the client likes best of those there are. Raises ``RegistryError`` 406.

    Browsers get JSON though they ask for HTML.
    """
    best, best_weight = "", 0.0
    for part in (accept or "*/*").split(",")[:_MAX_RANGES]:
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        offered = PRODUCED[0] if name in _ANYTHING else name
        weight = _weight(parameters)
        if offered in PRODUCED and weight > best_weight:
            best, best_weight = offered, weight
    if not best:
        raise RegistryError(406, "HTTP 406 Not Acceptable")
    return best


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return float(parameter[2:])
            except ValueError:
                return 0.0
    return 1.0
