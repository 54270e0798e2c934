"""JSON in and out: bounded reading, and writing as the Java registries write it.

The stored text is compared by bytes and hashed (``identity.schema_guid``), by other registries too.
So numbers are printed as ``Double.toString`` prints them and nothing outside ASCII is escaped.
"""

from __future__ import annotations

import json
import math
import re
from json.encoder import encode_basestring
from typing import TypeAlias

from .schema import InvalidSchema, Limits, SchemaTooLarge

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_BRACKET = re.compile(r"[\[\]{}]")


def check_size(text: str, limits: Limits) -> None:
    """Raises ``SchemaTooLarge`` over ``limits.max_bytes``, ``InvalidSchema`` if not Unicode."""
    if len(text) > limits.max_bytes:
        raise SchemaTooLarge(f"schema has over {limits.max_bytes} bytes")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidSchema("text holds half of a surrogate pair") from None
    if size > limits.max_bytes:
        raise SchemaTooLarge(f"schema has {size} bytes, the limit is {limits.max_bytes}")


def load_json(text: str, limits: Limits) -> Json:
    """Parses one JSON document; in an object with a repeated name the last one counts.

    Raises ``InvalidSchema`` for text that is not JSON (NaN and infinities included) and
    ``SchemaTooLarge`` over the limits, before anything recurses.
    """
    check_size(text, limits)
    _check_depth(text, limits)
    try:
        value: Json = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except ValueError as error:  # also an integer of thousands of digits
        raise InvalidSchema(f"not JSON: {error}") from None
    return value


def _check_depth(text: str, limits: Limits) -> None:
    if text.count("{") + text.count("[") <= limits.max_depth:
        return
    depth = 0
    for bracket in _BRACKET.findall(_STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        if depth > limits.max_depth:
            raise SchemaTooLarge(f"schema nests deeper than {limits.max_depth} levels")


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON value")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"number {text[:40]} is out of range")
    return number


def dump_json(value: Json, sort_keys: bool = False) -> str:
    """Compact JSON text of ``value`` in the order of its members, or in order of their names."""
    parts: list[str] = []
    _write(value, parts, sort_keys)
    text = "".join(parts)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidSchema("a string holds half of a surrogate pair") from None
    return text


def _write(value: Json, parts: list[str], sort_keys: bool) -> None:
    if isinstance(value, str):
        parts.append(quote(value))
    elif isinstance(value, dict):
        separator = "{"
        for name in sorted(value) if sort_keys else value:
            parts.append(f"{separator}{quote(name)}:")
            _write(value[name], parts, sort_keys)
            separator = ","
        parts.append("}" if value else "{}")
    elif isinstance(value, list):
        separator = "["
        for item in value:
            parts.append(separator)
            _write(item, parts, sort_keys)
            separator = ","
        parts.append("]" if value else "[]")
    elif isinstance(value, float):
        parts.append(double_text(value))
    else:
        parts.append(json.dumps(value))


def quote(text: str) -> str:
    """A JSON string literal; only quotes, backslashes and control characters are escaped."""
    return encode_basestring(text)


def double_text(value: float) -> str:
    """A number as Java's ``Double.toString`` has it: ``1.0E10``, not ``10000000000.0``."""
    if math.isnan(value):
        return '"NaN"'
    if math.isinf(value):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = _shortest(value)
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _shortest(value: float) -> tuple[str, str, int]:
    """Sign, digits without leading or trailing zeros, and the exponent of the first digit."""
    text = repr(value)
    sign, text = ("-", text[1:]) if text[0] == "-" else ("", text)
    mantissa, _, power = text.partition("e")
    whole, _, fraction = mantissa.partition(".")
    exponent = len(whole) - 1 + int(power or 0)
    digits = whole + fraction
    stripped = digits.lstrip("0")
    exponent -= len(digits) - len(stripped)
    return sign, stripped.rstrip("0") or "0", exponent
