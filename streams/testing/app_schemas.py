"""The schemas of an app under simulation: there from the start, with the same ids in every run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..app import App
from ..engine.schemas import schema_codecs
from ..errors import ConfigurationError

if TYPE_CHECKING:
    from onceward.registry.serializers.memory import MemoryRegistry

_PATIENCE_S = 60.0


class AppSchemas:
    """What the registry has to know that stands in for the one which ``app`` names."""

    def __init__(self, registry: MemoryRegistry) -> None:
        self._registry = registry

    async def register_at(self, url: str) -> None:
        """Raises RegistryError when there is none for a minute."""
        from onceward.registry.client import RegistryClient

        client = RegistryClient(url, timeout=_PATIENCE_S)
        for known in self._registry.registered():
            given = await client.register(known.subject, known.schema)
            if given.id != known.id:
                raise ConfigurationError(
                    f"the schema of {known.subject!r} has id {given.id}, not {known.id}"
                )


def schemas_of(app: App) -> AppSchemas | None:
    """Let ``app`` use a registry in memory for the one that it names, with all its schemas.

    None when it names none. Raises ConfigurationError when it names several, or when schemas have
    to be there that it does not register itself.
    """
    registries: dict[str, Any] = {}
    codecs = schema_codecs(app)
    for codec in codecs:
        codec.stand_in(registries)
    if not registries:
        return None
    if len(registries) > 1:
        raise ConfigurationError(f"a simulation has one registry, not {', '.join(registries)}")
    (registry,) = registries.values()
    try:
        for codec in codecs:
            registry.now(codec.prepare())
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"in a simulation the registry begins empty: {error}") from error
    return AppSchemas(registry)
