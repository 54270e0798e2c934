"""All schemas a schema leans on, in the order in which they can be parsed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .schema import InvalidSchema, Limits, Reference, ResolvedReference, SchemaTooLarge

Lookup = Callable[[Reference], ResolvedReference | None]
"""The schema a reference names (deleted ones included), or None when there is none."""


def resolve_references(
    references: Iterable[Reference], lookup: Lookup, limits: Limits | None = None
) -> tuple[ResolvedReference, ...]:
    """Follows ``references`` to the end; what a schema refers to comes before the schema.

    A name that is met again is the one met first, as in Confluent's registry: schemas see each
    other by name only. Raises ``InvalidSchema`` for a reference that leads nowhere or round in a
    circle, ``SchemaTooLarge`` over ``limits``.
    """
    limits = limits or Limits()
    done: dict[str, ResolvedReference] = {}
    open_names: set[str] = set()
    seen: set[str] = set()
    size = 0
    # Entries are (reference, resolved): resolved is set once the references of it were pushed.
    stack: list[tuple[Reference, ResolvedReference | None]] = [
        (reference, None) for reference in reversed(tuple(references))
    ]
    while stack:
        reference, resolved = stack.pop()
        if resolved is not None:
            open_names.discard(reference.name)
            done[reference.name] = resolved
            continue
        if reference.name in open_names:
            raise InvalidSchema(f"reference {reference.name!r} leads back to itself")
        if reference.name in seen:
            continue
        found = lookup(reference)
        if found is None:
            raise InvalidSchema(
                f"no schema for reference {reference.name!r}: "
                f"subject {reference.subject!r}, version {reference.version}"
            )
        seen.add(reference.name)
        open_names.add(reference.name)
        size += len(found.text)
        if len(seen) > limits.max_references:
            raise SchemaTooLarge(f"schema refers to more than {limits.max_references} others")
        if size > limits.max_bytes:
            raise SchemaTooLarge(f"schema refers to over {limits.max_bytes} bytes of others")
        stack.append((reference, found))
        stack += [(inner, None) for inner in reversed(found.references)]
    return tuple(done.values())
