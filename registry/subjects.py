"""Subjects and the contexts they live in: ``orders-value``, ``:.lab:orders-value``, ``:.lab:``.

A context is a name space with schema ids of its own; its name begins with a dot, and ``.`` is the
default one, which is not written. Source: Confluent's ``QualifiedSubject``.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Self

from .errors import invalid_subject

DEFAULT_CONTEXT = "."
GLOBAL_CONTEXT = ".__GLOBAL"
EVERY_CONTEXT = ":*:"
MAX_SUBJECT = 1_000
"""Characters. A subject is part of keys, URLs and log lines."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_RESERVED = ("__GLOBAL", "__EMPTY")


class QualifiedSubject(NamedTuple):
    """A subject name within a context; an empty name means the context as a whole."""

    context: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Self:
        if not text.startswith(":."):
            return cls(DEFAULT_CONTEXT, text)
        context, _, name = text[1:].partition(":")
        return cls(context, name)

    def __str__(self) -> str:
        return self.name if self.context == DEFAULT_CONTEXT else f":{self.context}:{self.name}"


def context_of(subject: str) -> str:
    return QualifiedSubject.parse(subject).context


def plain(subject: str) -> str:
    """The one spelling of a subject: the default context is not written."""
    return str(QualifiedSubject.parse(subject))


def checked_subject(text: str) -> str:
    """The subject of a schema in its one spelling. Raises ``RegistryError`` 42208."""
    qualified = QualifiedSubject.parse(text)
    if (
        not qualified.name
        or qualified.name in _RESERVED
        or qualified.context == GLOBAL_CONTEXT
        or _is_bad(text)
    ):
        raise invalid_subject(text)
    return str(qualified)


def checked_scope(text: str) -> str:
    """The subject or context (``:.lab:``) of a config or mode. Raises ``RegistryError`` 42208.

    The default context as a whole is the empty text: the global setting.
    """
    qualified = QualifiedSubject.parse(text)
    if _is_bad(text) or qualified.name in _RESERVED:
        raise invalid_subject(text)
    return str(qualified)


def _is_bad(text: str) -> bool:
    return len(text) > MAX_SUBJECT or _CONTROL.search(text) is not None


def in_context(context: str, subject: str) -> str:
    """``subject`` as seen from ``context``: one that names no context of its own is in there."""
    return str(QualifiedSubject(context, subject)) if not subject.startswith(":.") else subject


def scopes_of(subject: str) -> tuple[str, ...]:
    """Where a setting for ``subject`` is looked for, the nearest first; ``""`` is global."""
    qualified = QualifiedSubject.parse(subject)
    scopes = [str(qualified)] if qualified.name else []
    if qualified.context != DEFAULT_CONTEXT:
        scopes.append(str(QualifiedSubject(qualified.context, "")))
    else:
        scopes.append("")
    scopes += ["", str(QualifiedSubject(GLOBAL_CONTEXT, ""))]
    return tuple(dict.fromkeys(scopes))


def is_within(subject: str, scope: str) -> bool:
    """Whether a setting of ``scope`` is about ``subject``: itself, its context, or global."""
    wanted = QualifiedSubject.parse(scope)
    if wanted.name:
        return subject == scope
    return wanted.context in (context_of(subject), GLOBAL_CONTEXT)


def context_from_path(text: str) -> str:
    """The context of ``/contexts/{text}/...``, with or without its dot and colons.

    Raises ``RegistryError`` 42208.
    """
    name = text.strip(":")
    context = name if name.startswith(".") else f".{name}"
    if ":" in context or _is_bad(context):
        raise invalid_subject(text)
    return context
