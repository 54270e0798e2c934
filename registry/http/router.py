"""Which handler a path belongs to. Works on the path as it was sent: subjects contain slashes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias
from urllib.parse import unquote_to_bytes

from ..errors import RegistryError
from ..schemas.json_text import Json
from ..service import RegistryService
from ..subjects import DEFAULT_CONTEXT, context_from_path
from .call import Call
from .text import Text

Handler: TypeAlias = "Callable[[RegistryService, Call], Awaitable[Json | Text]]"


@dataclass(frozen=True, slots=True)
class Route:
    """``path`` has parameters in braces; ``writes`` is only for the instance that leads."""

    method: str
    path: str
    handler: Handler
    summary: str
    query: Sequence[str] = ()
    writes: bool = False
    body: str = ""
    """What the body of the request is: Schema, Config, Mode or nothing."""

    @property
    def segments(self) -> tuple[str, ...]:
        return tuple(segment for segment in self.path.split("/") if segment)


class Match(NamedTuple):
    """Where a request goes."""

    route: Route
    parameters: dict[str, str]
    context: str


class Router:
    """Finds routes by method and raw path."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._by_length: dict[int, list[Route]] = {}
        for route in routes:
            self._by_length.setdefault(len(route.segments), []).append(route)

    def match(self, method: str, raw_path: bytes) -> Match:
        """Raises ``RegistryError`` 404 for an unknown path, 405 for a wrong method, 400 for a path
        that is not UTF-8."""
        segments = [_decoded(segment) for segment in raw_path.split(b"/")]
        segments = segments[1:] if segments and not segments[0] else segments
        if segments and not segments[-1]:
            segments = segments[:-1]
        context = DEFAULT_CONTEXT
        if len(segments) > 2 and segments[0] == "contexts":
            context = context_from_path(segments[1])
            segments = segments[2:]
        known = False
        for route in self._by_length.get(len(segments), ()):
            parameters = _fit(route.segments, segments)
            if parameters is None:
                continue
            known = True
            if route.method == ("GET" if method == "HEAD" else method):
                return Match(route, parameters, context)
        if known:
            raise RegistryError(405, "HTTP 405 Method Not Allowed")
        raise RegistryError(404, "HTTP 404 Not Found")


def _decoded(segment: bytes) -> str:
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        raise RegistryError(400, "The path is not UTF-8") from None


def _fit(pattern: Sequence[str], segments: Sequence[str]) -> dict[str, str] | None:
    parameters = {}
    for wanted, segment in zip(pattern, segments, strict=True):
        if wanted.startswith("{"):
            parameters[wanted[1:-1]] = segment
        elif wanted != segment:
            return None
    return parameters
