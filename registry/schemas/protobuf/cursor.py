"""Reading tokens one after the other."""

from __future__ import annotations

from collections.abc import Container

from ..schema import InvalidSchema
from .lexer import Kind, Token, place, tokens_of

_FIXED = (Kind.SYMBOL, Kind.IDENT)
"""Tokens that are what their text is."""


class Cursor:
    """Where a parser is in a text. Every method raises ``InvalidSchema`` with line and column."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens_of(text)
        self._at = 0

    @property
    def token(self) -> Token:
        return self._tokens[self._at]

    @property
    def at_end(self) -> bool:
        return self.token.kind is Kind.END

    def fail(self, message: str, token: Token | None = None) -> InvalidSchema:
        return InvalidSchema(message, place(self._text, (token or self.token).offset))

    def next(self) -> Token:
        token = self.token
        if token.kind is Kind.END:
            raise self.fail("the text ends too early")
        self._at += 1
        return token

    def sees(self, *texts: str) -> bool:
        """Whether the next tokens are these symbols or words."""
        ahead = self._tokens[self._at : self._at + len(texts)]
        return len(ahead) == len(texts) and all(
            token.text == text and token.kind in _FIXED
            for token, text in zip(ahead, texts, strict=True)
        )

    def sees_one_of(self, words: Container[str]) -> bool:
        return self.token.kind is Kind.IDENT and self.token.text in words

    def take(self, text: str) -> bool:
        """Goes past ``text`` if it comes next."""
        token = self.token
        if token.text != text or token.kind not in _FIXED:
            return False
        self._at += 1
        return True

    def expect(self, text: str) -> None:
        if not self.take(text):
            raise self.fail(f"{text!r} is missing before {self.token.text[:40]!r}")

    def ident(self) -> str:
        if self.token.kind is not Kind.IDENT:
            raise self.fail(f"a name is missing before {self.token.text[:40]!r}")
        return self.next().text

    def dotted(self) -> str:
        """A name with dots; a leading one makes it absolute."""
        parts = ["."] if self.take(".") else []
        parts.append(self.ident())
        while self.take("."):
            parts += [".", self.ident()]
        return "".join(parts)

    def integer(self) -> int:
        sign = -1 if self.take("-") else 1
        token = self.next()
        if token.kind is not Kind.INT:
            raise self.fail("a whole number is missing", token)
        return sign * number_of(token, self)

    def string(self) -> bytes:
        """One string, or several written after each other."""
        if self.token.kind is not Kind.STRING:
            raise self.fail(f"a string is missing before {self.token.text[:40]!r}")
        parts = [self.next().value]
        while self._tokens[self._at].kind is Kind.STRING:
            parts.append(self.next().value)
        return b"".join(parts)

    def text_string(self) -> str:
        start = self.token
        try:
            return self.string().decode()
        except UnicodeDecodeError:
            raise self.fail("string is no UTF-8", start) from None


def number_of(token: Token, cursor: Cursor) -> int:
    """The value of an INT token: decimal, hexadecimal or octal."""
    text = token.text
    if len(text) > 40:
        raise cursor.fail("number is too large", token)
    try:
        if text[:2] in ("0x", "0X"):
            return int(text, 16)
        return int(text, 8) if text[0] == "0" else int(text)
    except ValueError:
        raise cursor.fail("not a number", token) from None
