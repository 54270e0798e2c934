"""What the serializers ``Avro``, ``JsonSchema`` and ``Protobuf`` share: their options."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from ..client import RegistryClient
from .codec import Options, Registry, RegistryCodec
from .subjects import SubjectStrategy, subject_strategy

GivenRegistry = str | Iterable[str] | Registry


class RegistrySerializer(ABC):
    """Given to a topic or table as ``key_serializer`` or ``value_serializer``.

    ``registry``: an address, several, ``memory://name`` (a registry in this process), or a client.
    ``subject_name_strategy``: ``topic``, ``record``, ``topic_record``, or a function.
    ``auto_register``: whether a schema that is not in its subject is added to it; without, it must
    be there. ``use_latest_version``: records are written with the newest version of the subject,
    whatever the type would give. ``normalize``: the registry normalises schemas before comparing.
    ``header_ids``: the schema is named in a record header, not in front of the payload. Reading
    takes both. Raises ValueError.
    """

    def __init__(
        self,
        value_type: Any,
        *,
        registry: GivenRegistry,
        subject_name_strategy: str | SubjectStrategy = "topic",
        auto_register: bool = True,
        use_latest_version: bool = False,
        normalize: bool = False,
        header_ids: bool = False,
    ) -> None:
        self.value_type = value_type
        self.registry = _registry(registry)
        self.options = Options(
            auto_register,
            use_latest_version,
            normalize,
            header_ids,
            subject_strategy(subject_name_strategy),
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value_type!r}, registry={self.registry!r})"

    @abstractmethod
    def bind(self, value_type: Any, topic: str | None, *, is_key: bool) -> RegistryCodec:
        """The codec of a topic; ``value_type`` counts when the serializer has none of its own.

        For use outside of apps as well: ``encode_many``, ``decode_many``. Raises UnsupportedType,
        InvalidSchema.
        """


def _registry(given: GivenRegistry) -> Registry:
    if isinstance(given, str):
        if given.startswith("memory://"):
            from .memory import memory_registry  # compares schemas: much to load

            return memory_registry(given.removeprefix("memory://"))
        return RegistryClient(given)
    if isinstance(given, Iterable):
        return RegistryClient(given)
    return given
