"""``JsonSchema``: records as JSON text, their schemas in a registry."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from ...client import Registered, SchemaText
from ...schemas.json_schema.schema import JsonSchema as ParsedJsonSchema
from ...schemas.json_text import Json
from ...schemas.schema import InvalidSchema, Reference, ResolvedReference, SchemaType
from ..codec import Part, Read, RegistryCodec, Write
from ..errors import DoesNotFit, Undecodable, UnsupportedType, shown
from ..models import model_of
from ..serializer import GivenRegistry, RegistrySerializer
from ..subjects import SubjectStrategy
from ..wire import prefix_of
from .derive import schema_of
from .validate import Validator

_PLAIN_TYPES: Final = (None, Any, dict, object)
_MAX_READERS: Final = 10_000
_PLACE: Final = re.compile(r"(.*) - at `(?:key in )?\$(.*)`$", re.DOTALL)
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")

Decode = Callable[[bytes], Any]


class JsonSchema(RegistrySerializer):
    """``app.topic("orders", value_serializer=JsonSchema(Order, registry="http://..."))``.

    ``value_type``: as of ``Avro``; the schema is made from it unless ``schema`` gives one (text, a
    Path, or data). With a schema alone values are dicts and the like; with neither, records are
    read with the schema they were written with. ``open_content``: objects of the schema that is
    made may hold more than is declared. ``validate=False``: data is not checked, neither when it is
    written nor, without a type, when it is read. ``references``: schemas in the registry that
    ``schema`` names. Other options: RegistrySerializer. Raises UnsupportedType, InvalidSchema,
    ValueError.

    With a type or a schema of one's own records are read as that says, whatever they were written
    with, and the registry is not asked for schemas of others.
    """

    def __init__(
        self,
        value_type: Any = None,
        *,
        registry: GivenRegistry,
        schema: str | Path | Mapping[str, Any] | None = None,
        references: Sequence[Reference] = (),
        open_content: bool = False,
        validate: bool = True,
        subject_name_strategy: str | SubjectStrategy = "topic",
        auto_register: bool = True,
        use_latest_version: bool = False,
        normalize: bool = False,
        header_ids: bool = False,
    ) -> None:
        if schema is None and isinstance(value_type, str | Path | Mapping):
            value_type, schema = None, value_type
        super().__init__(
            value_type,
            registry=registry,
            subject_name_strategy=subject_name_strategy,
            auto_register=auto_register,
            use_latest_version=use_latest_version,
            normalize=normalize,
            header_ids=header_ids,
        )
        if isinstance(schema, Path):
            schema = schema.read_text(encoding="utf-8")
        self._text = schema if isinstance(schema, str | None) else json.dumps(schema)
        self._references = tuple(references)
        self._is_open = open_content
        self.validates = validate

    def bind(self, value_type: Any, topic: str | None, *, is_key: bool) -> JsonCodec:
        chosen = self.value_type if self.value_type is not None else value_type
        text = self._text
        if chosen in _PLAIN_TYPES:
            chosen = None
        elif text is None:
            text = json.dumps(schema_of(model_of(chosen), is_open=self._is_open))
        codec = JsonCodec(self, topic or "", is_key, chosen, text, self._references)
        return codec.made_by(partial(self.bind, value_type))


class _Schema(Part):
    def __init__(self, text: str, references: tuple[Reference, ...]) -> None:
        try:
            self.data: Json = json.loads(text)
        except ValueError as error:
            raise InvalidSchema(f"not JSON: {error}") from None
        if not references:
            text = ParsedJsonSchema.parse(text).canonical
        self.schema = SchemaText(SchemaType.JSON, text, references)
        title = self.data.get("title") if isinstance(self.data, dict) else None
        super().__init__(title if isinstance(title, str) else None)


class JsonCodec(RegistryCodec):
    """See RegistryCodec."""

    def __init__(
        self,
        serializer: JsonSchema,
        topic: str,
        is_key: bool,
        value_type: Any,
        text: str | None,
        references: tuple[Reference, ...],
    ) -> None:
        self._schema = None if text is None else _Schema(text, references)
        parts: list[Part] = [] if self._schema is None else [self._schema]
        if not parts and serializer.options.use_latest_version:
            parts.append(Part(None))
        super().__init__(serializer.registry, serializer.options, topic, is_key=is_key, parts=parts)
        self._type = value_type
        self._validates = serializer.validates
        self._dump = msgspec.json.Encoder(enc_hook=_represent).encode
        self._load: Decode = _decoder(value_type)
        self._validator: Validator | None = None

    @property
    def _reads_by_itself(self) -> bool:
        """Whether reading needs no schema of others: there is a type, or a schema without
        references to judge by."""
        own = self._schema
        return self._type is not None or (own is not None and not own.schema.references)

    async def _schema_text(self, part: Part) -> SchemaText:
        assert isinstance(part, _Schema)
        return part.schema

    def unknown(self, data: Any) -> set[bytes]:
        return set() if self._reads_by_itself else super().unknown(data)

    async def learn_versions(self) -> None:
        if not self._reads_by_itself:
            await super().learn_versions()

    # writing

    def _writer(
        self,
        part: Part,
        registered: Registered,
        references: tuple[ResolvedReference, ...],
        prefix: bytes,
    ) -> Write:
        dump, load, cls = self._dump, self._load, self._type
        if not self._validates:
            return lambda value: prefix + dump(value)
        own = self._schema
        schema: Json = json.loads(registered.schema.text)
        self._validator = validator = Validator(schema, references)
        quick = validator.quick
        # a type says all that the schema made from it says, and msgspec checks it at once
        by_type = isinstance(cls, type) and own is part and not self.options.use_latest_version
        by_type = by_type and hasattr(cls, "__annotations__") and not _is_mapping(cls)

        def write(value: Any) -> bytes:
            if by_type and type(value) is cls:
                data = dump(value)
                if dump(load(data)) == data:  # else it held more than the type says, in a dict
                    return prefix + data
            if quick is not None and quick(value):
                return prefix + dump(value)
            data = dump(value)
            fault = validator.fault(msgspec.json.decode(data), self._place())
            if fault is not None:
                raise fault
            return prefix + data

        return write

    def _place(self) -> str:
        name = self._schema.record_name if self._schema is not None else None
        short = (name or "value").rpartition(".")[2]
        return short[:1].lower() + short[1:]

    def _encode_otherwise(self, value: Any, error: Exception) -> bytes:
        found = _PLACE.match(str(error)) if isinstance(error, msgspec.ValidationError) else None
        reason = found[1] if found else str(error)
        path = found[2] if found else ""
        reason = reason.replace("`", "")
        reason = reason[:1].lower() + reason[1:]
        if isinstance(error, msgspec.ValidationError):
            reason = re.sub(r", got \w+$", "", reason)
            reason += f", got {shown(_at(msgspec.json.decode(self._dump(value)), path))}"
        raise DoesNotFit(f"{self._place()}{path}", reason) from None

    # reading

    def _reader_for(self, data: bytes) -> Read:
        if not self._reads_by_itself:
            return super()._reader_for(data)
        prefix = prefix_of(data)
        known = self._readers.get(prefix)
        if known is None:
            own = self._schema
            known = self._reading(len(prefix), None if own is None else Validator(own.data))
            if len(self._readers) < _MAX_READERS:
                self._readers[prefix] = known
        return known

    def _reader(
        self, schema: SchemaText, references: tuple[ResolvedReference, ...], size: int
    ) -> Read:
        if schema.schema_type is not SchemaType.JSON:
            raise InvalidSchema(f"it is a {schema.schema_type} schema, not JSON")
        return self._reading(size, Validator(json.loads(schema.text), references))

    def _reading(self, size: int, validator: Validator | None) -> Read:
        load = self._load
        if self._type is not None or validator is None or not self._validates:
            return lambda data: load(data[size:])
        quick = validator.quick

        def read(data: bytes) -> Any:
            value = load(data[size:])
            if quick is None or not quick(value):
                fault = validator.fault(value, self._place())
                if fault is not None:
                    raise Undecodable(str(fault))
            return value

        return read


def _is_mapping(cls: type) -> bool:
    return issubclass(cls, dict)


def _decoder(value_type: Any) -> Decode:
    """Raises UnsupportedType."""
    if value_type is None:
        return msgspec.json.Decoder().decode
    if isinstance(value_type, type) and hasattr(value_type, "model_validate_json"):
        validate: Decode = value_type.model_validate_json
        return validate
    try:
        return msgspec.json.Decoder(value_type, dec_hook=_revive).decode
    except TypeError as error:
        raise UnsupportedType(f"{value_type!r} has no JSON form: {error}") from None


def _represent(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} has no JSON form: {shown(value)}")


def _revive(value_type: type, value: Any) -> Any:
    if hasattr(value_type, "model_validate"):
        return value_type.model_validate(value)
    raise ValueError(f"{value_type.__name__} cannot be made from JSON")


def _at(data: Any, path: str) -> Any:
    """What lies at ``.lines[2].price``; the whole where the path cannot be followed."""
    found = data
    for name, index in _STEP.findall(path):
        if name and isinstance(found, dict) and name in found:
            found = found[name]
        elif index and isinstance(found, list) and int(index) < len(found):
            found = found[int(index)]
        else:
            return data
    return found
