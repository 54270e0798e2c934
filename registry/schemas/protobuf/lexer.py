"""``.proto`` text to tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from ..schema import InvalidSchema


class Kind(Enum):
    IDENT = auto()
    INT = auto()
    FLOAT = auto()
    STRING = auto()
    SYMBOL = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """``text`` is as written; ``value`` are the bytes of a string, without quotes and escapes."""

    kind: Kind
    text: str
    offset: int
    value: bytes = b""


MAX_NAME = 255
"""Characters of a name without dots."""

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*|/\*.*?\*/)
  | (?P<FLOAT>(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?[fF]?|\d+[eE][+-]?\d+[fF]?)
  | (?P<INT>0[xX][0-9a-fA-F]+|\d+)
  | (?P<IDENT>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<STRING>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
  | (?P<SYMBOL>[{}\[\]()<>=;,.:\-+/])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(
    r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL
)
_SIMPLE: Final[dict[str, str]] = {
    "n": "\n", "r": "\r", "t": "\t", "a": "\a", "b": "\b", "f": "\f", "v": "\v"
}  # fmt: skip


def tokens_of(text: str) -> list[Token]:
    """All tokens, an END last. Raises ``InvalidSchema`` with line and column."""
    found: list[Token] = []
    offset = 0
    while offset < len(text):
        match = _TOKEN.match(text, offset)
        if match is None:
            raise InvalidSchema(f"unexpected {text[offset]!r}", place(text, offset))
        group = match.lastgroup or ""
        if group != "space":
            kind = Kind[group]
            written = match.group()
            if kind is Kind.IDENT and len(written) > MAX_NAME:
                raise InvalidSchema("a name is too long", place(text, offset))
            if kind in (Kind.INT, Kind.FLOAT) and text[match.end() : match.end() + 1].isalnum():
                raise InvalidSchema("a number runs into a word", place(text, match.end()))
            value = _unescaped(written, text, offset) if kind is Kind.STRING else b""
            found.append(Token(kind, written, offset, value))
        offset = match.end()
    found.append(Token(Kind.END, "", offset))
    return found


def place(text: str, offset: int) -> str:
    """``line:column`` of an offset, both from 1."""
    return f"{text.count(chr(10), 0, offset) + 1}:{offset - text.rfind(chr(10), 0, offset)}"


def _unescaped(written: str, text: str, offset: int) -> bytes:
    parts: list[bytes] = []
    inner = written[1:-1]
    at = 0
    for match in _ESCAPE.finditer(inner):
        parts.append(inner[at : match.start()].encode())
        octal, digits, short, long, simple = match.groups()
        if octal is not None:
            parts.append(bytes([int(octal, 8) & 0xFF]))
        elif digits is not None:
            parts.append(bytes([int(digits, 16)]))
        elif simple is not None:
            parts.append(_SIMPLE.get(simple, simple).encode())
        else:
            parts.append(_code_point(int(short or long, 16), place(text, offset)))
        at = match.end()
    parts.append(inner[at:].encode())
    return b"".join(parts)


def _code_point(code: int, where: str) -> bytes:
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise InvalidSchema("an escape names no character", where)
    return chr(code).encode()
