"""Topics: where records come from and go to, with the types of their keys and values."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from .engine.block import Headers
from .engine.context import CURRENT
from .engine.kernel import TopicSend
from .errors import ConfigurationError
from .serde import default_key_codec, default_value_codec, encode_raw

if TYPE_CHECKING:
    from .app import App

GivenHeaders = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]


class Topic(TopicSend):
    """A declared topic (or several with the same types); made by ``app.topic``.

    ``encode_key``, ``encode_value``, ``decode_key`` and ``decode_value`` are plain functions that
    never see None.
    """

    def __init__(
        self,
        app: App,
        names: tuple[str, ...],
        *,
        key_type: Any = None,
        value_type: Any = None,
        key_serializer: Any = None,
        value_serializer: Any = None,
        partitions: int | None = None,
        retention: float | timedelta | None = None,
        compacting: bool | None = None,
        deleting: bool | None = None,
        replicas: int | None = None,
        config: Mapping[str, Any] | None = None,
        internal: bool = False,
    ) -> None:
        if not names:
            raise ConfigurationError("a topic needs at least one name")
        if partitions is not None and partitions < 1:
            raise ConfigurationError(f"topic {names[0]!r}: partitions must be at least 1")
        self.app = app
        self.names = names
        self.name = names[0]
        self.key_type = key_type
        self.value_type = value_type
        self.partitions = partitions
        self.replicas = replicas
        self.internal = internal
        self.configs = _configs(retention, compacting, deleting, config or {})
        self.is_declared = partitions is not None or bool(self.configs) or internal
        settings = app.conf
        key = default_key_codec(key_serializer, key_type, settings.key_serializer, self.name)
        value = default_value_codec(
            value_serializer, value_type, settings.value_serializer, self.name
        )
        if value_type is None:
            self.value_type = getattr(value_serializer, "value_type", None)
        self.key_codec = key
        self.value_codec = value
        self.encode_key, self.decode_key = key.encode, key.decode
        self.encode_value, self.decode_value = value.encode, value.decode
        self.schemas = [each.schemas for each in (key, value) if each.schemas is not None]
        self._names_schemas = any(codec.writes_headers for codec in self.schemas)
        self.encodes_text = self.encode_key in (encode_raw, str.encode)
        self.is_plain = not self._names_schemas

    def __repr__(self) -> str:
        return f"<Topic {', '.join(self.names)}>"

    def get_topic_name(self) -> str:
        """The (first) name, as in Faust."""
        return self.name

    def _send_given(
        self,
        *,
        key: Any = None,
        value: Any = None,
        partition: int | None = None,
        timestamp: float | None = None,
        headers: GivenHeaders | None = None,
        key_serializer: Any = None,
        value_serializer: Any = None,
    ) -> Awaitable[None]:
        if self.schemas and CURRENT.get() is None and not self.is_prepared:
            given = key, value, partition, timestamp, headers
            return self._send_prepared(*given, key_serializer, value_serializer)
        if key is not None:
            if key_serializer is not None:
                codec = default_key_codec(key_serializer, self.key_type, None, self.name)
                key = codec.encode(key)
            else:
                key = self.encode_key(key)
        if value is not None:
            if value_serializer is None:
                value = self.encode_value(value)
            else:
                codec = default_value_codec(value_serializer, self.value_type, None, self.name)
                value = codec.encode(value)
        if self._names_schemas:
            key, value, headers = self._with_schema_headers(key, value, headers)
        return self.send_encoded(
            key,
            value,
            partition=partition,
            timestamp_ms=None if timestamp is None else int(timestamp * 1000),
            headers=headers_of(headers),
        )

    async def _send_prepared(
        self,
        key: Any,
        value: Any,
        partition: int | None,
        timestamp: float | None,
        headers: GivenHeaders | None,
        key_serializer: Any,
        value_serializer: Any,
    ) -> None:
        await self.prepare()
        await self.send(
            key=key,
            value=value,
            partition=partition,
            timestamp=timestamp,
            headers=headers,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
        )

    @property
    def is_prepared(self) -> bool:
        """Whether the schemas of what is sent are known; true of topics without a registry."""
        return all(codec.is_prepared for codec in self.schemas)

    async def prepare(self) -> None:
        """Find or register the schemas of what is sent. Workers do this when they start, for topics
        they can be seen to send to. Raises ValueError."""
        for codec in self.schemas:
            if not codec.is_prepared:
                await codec.prepare()

    def _with_schema_headers(
        self, key: bytes | None, value: bytes | None, headers: GivenHeaders | None
    ) -> tuple[bytes | None, bytes | None, GivenHeaders]:
        """Schema ids moved from the payloads to headers, where the serializers want that."""
        pairs = list(headers_of(headers))
        for_key, for_value = self.key_codec.schemas, self.value_codec.schemas
        if for_key is not None and for_key.writes_headers and key is not None:
            schema, key = for_key.split(key)
            pairs.append((for_key.header_name, schema))
        if for_value is not None and for_value.writes_headers and value is not None:
            schema, value = for_value.split(value)
            pairs.append((for_value.header_name, schema))
        return key, value, pairs

    def send_soon(self, **record: Any) -> Awaitable[None]:
        """``send`` that need not be awaited (inside a worker no send needs to be)."""
        return self.send(**record)

    def send_encoded(
        self,
        key: bytes | None,
        value: bytes | None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> Awaitable[None]:
        """``send`` for bytes that are encoded already."""
        emitter = CURRENT.get()
        if emitter is None:
            return self.app.produce(self.name, key, value, partition, timestamp_ms, headers)
        output = emitter.outputs.open(self.name)
        if partition is not None:
            output.partitions[len(output.values)] = partition
        if headers:
            output.headers[len(output.values)] = headers
        output.keys.append(key)
        output.values.append(value)
        output.timestamps.append(emitter.timestamp_ms() if timestamp_ms is None else timestamp_ms)
        return emitter.sent()

    async def declare(self) -> None:
        """Create the topic if it is missing. Workers do this when they start."""
        await self.app.declare(self)

    maybe_declare = declare


def _configs(
    retention: float | timedelta | None,
    compacting: bool | None,
    deleting: bool | None,
    given: Mapping[str, Any],
) -> dict[str, str]:
    configs: dict[str, str] = {}
    if retention is not None:
        seconds = retention.total_seconds() if isinstance(retention, timedelta) else retention
        configs["retention.ms"] = str(int(seconds * 1000))
    policies = ["compact"] if compacting else []
    if deleting or (compacting is False and deleting is None):
        policies.append("delete")
    if policies:
        configs["cleanup.policy"] = ",".join(policies)
    configs.update({key: _config_text(value) for key, value in given.items()})
    return configs


def _config_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def headers_of(headers: GivenHeaders | None) -> Headers:
    """As records carry them: pairs, text as UTF-8."""
    if not headers:
        return ()
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((key, text.encode() if isinstance(text, str) else text) for key, text in pairs)
