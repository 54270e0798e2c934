"""``Avro``: records as Avro binary, their schemas in a registry."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from ...client import Registered, SchemaText
from ...schemas.avro.schema import AvroSchema
from ...schemas.json_text import Json
from ...schemas.schema import InvalidSchema, Reference, ResolvedReference, SchemaType
from ..codec import MISFITS, Options, Part, Read, Registry, RegistryCodec, Write
from ..errors import DoesNotFit, shown
from ..models import UNTYPED, Model, RecordOf, Style, UnionOf, model_of
from ..serializer import GivenRegistry, RegistrySerializer
from ..subjects import SubjectStrategy, topic_name
from .derive import schema_of
from .faults import find_fault
from .reader import compile_reader
from .writer import compile_writer

GivenSchema = str | Path | Mapping[str, Any] | Sequence[Any]
_PLAIN_TYPES: Final = (None, Any, dict, object)


class Avro(RegistrySerializer):
    """``app.topic("orders", value_serializer=Avro(Order, registry="http://127.0.0.1:8081"))``.

    ``value_type``: a Record, dataclass, pydantic model, TypedDict, scalar or union; the schema is
    made from it unless ``schema`` gives one (text, a Path, or data), of which it must have the
    fields. With a schema alone values are dicts; with neither, records are read as written.
    ``namespace`` and ``aliases`` (former names) are of the schema that is made. ``references``:
    schemas in the registry that ``schema`` names, resolved when it is used. Other options:
    RegistrySerializer. Raises UnsupportedType, InvalidSchema, ValueError.
    """

    def __init__(
        self,
        value_type: Any = None,
        *,
        registry: GivenRegistry,
        schema: GivenSchema | None = None,
        references: Sequence[Reference] = (),
        namespace: str = "",
        aliases: Sequence[str] = (),
        subject_name_strategy: str | SubjectStrategy = "topic",
        auto_register: bool = True,
        use_latest_version: bool = False,
        normalize: bool = False,
        header_ids: bool = False,
    ) -> None:
        if schema is None and isinstance(value_type, str | Path | Mapping | list):
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
        self._text = None if schema is None else _text(schema)
        self._references = tuple(references)
        self._namespace = namespace
        self._aliases = tuple(aliases)

    def bind(self, value_type: Any, topic: str | None, *, is_key: bool) -> AvroCodec:
        chosen = self.value_type if self.value_type is not None else value_type
        model: Model = UNTYPED if chosen in _PLAIN_TYPES else model_of(chosen)
        texts: list[tuple[Model, str]] = []
        if self._text is not None:
            texts = [(model, self._text)]
        elif model is not UNTYPED:
            is_split = isinstance(model, UnionOf) and self.options.strategy is not topic_name
            for each in model.members if is_split and isinstance(model, UnionOf) else (model,):
                made = schema_of(each, self._namespace, self._aliases)
                texts.append((each, json.dumps(made, ensure_ascii=False)))
        codec = AvroCodec(
            self.registry, self.options, topic or "", is_key, model, texts, self._references
        )
        return codec.made_by(partial(self.bind, value_type))


class _Schema(Part):
    """A part with what it was made from."""

    def __init__(self, model: Model, text: str, references: tuple[Reference, ...]) -> None:
        self.schema = SchemaText(SchemaType.AVRO, text, references)
        self.model = model
        self.parsed = None if references else AvroSchema.parse(text)
        if self.parsed is not None:
            self.schema = SchemaText(SchemaType.AVRO, self.parsed.canonical)
        super().__init__(_name(text) if self.parsed is None else self.parsed.name)
        if isinstance(model, RecordOf):
            self.cls = dict if model.style is Style.ITEMS else model.cls


class AvroCodec(RegistryCodec):
    """See RegistryCodec."""

    def __init__(
        self,
        registry: Registry,
        options: Options,
        topic: str,
        is_key: bool,
        model: Model,
        texts: list[tuple[Model, str]],
        references: tuple[Reference, ...],
    ) -> None:
        self._schemas = [_Schema(each, text, references) for each, text in texts]
        parts: list[Part] = [*self._schemas]
        if not parts and options.use_latest_version:
            parts.append(Part(None))
        super().__init__(registry, options, topic, is_key=is_key, parts=parts)
        self._model = model
        self._written: dict[type | None, tuple[AvroSchema, bytes]] = {}
        self._untyped: dict[type | None, Write] = {}

    async def _schema_text(self, part: Part) -> SchemaText:
        assert isinstance(part, _Schema)
        return part.schema

    async def prepare(self) -> None:
        await super().prepare()
        for schema in self._schemas:  # what is read first is most often what is written
            if schema.registered is not None and self._reading_schema(schema) is None:
                schema.parsed = self._parse(schema.schema, await self._resolved(schema.schema))

    def _reading_schema(self, schema: _Schema) -> AvroSchema | None:
        return schema.parsed

    @staticmethod
    def _parse(schema: SchemaText, references: tuple[ResolvedReference, ...]) -> AvroSchema:
        if schema.schema_type is not SchemaType.AVRO:
            raise InvalidSchema(f"it is a {schema.schema_type} schema, not AVRO")
        return AvroSchema.parse(schema.text, schema.references, references, strict=False)

    def _writer(
        self,
        part: Part,
        registered: Registered,
        references: tuple[ResolvedReference, ...],
        prefix: bytes,
    ) -> Write:
        parsed = self._parse(registered.schema, references)
        model = part.model if isinstance(part, _Schema) else self._model
        self._written[part.cls] = parsed, prefix
        return compile_writer(parsed.root, model, prefix)

    def _reader(
        self, schema: SchemaText, references: tuple[ResolvedReference, ...], size: int
    ) -> Read:
        writer = self._parse(schema, references)
        reader, model = self._target(writer, references)
        read = compile_reader(writer.root, reader.root, model)
        return lambda data: read(data, size)

    def _target(
        self, writer: AvroSchema, references: tuple[ResolvedReference, ...]
    ) -> tuple[AvroSchema, Model]:
        """The schema and type that data of ``writer`` is read as."""
        known = self._schemas
        if len(known) > 1:
            short = (writer.name or "").rpartition(".")[2]
            known = [one for one in known if (one.record_name or "").rpartition(".")[2] == short]
            if not known:
                raise InvalidSchema(f"no type is declared for records of {writer.name}")
        if not known:
            return writer, self._model
        one = known[0]
        if one.parsed is None:
            # its references are those of what was written: the same names, perhaps newer versions
            one.parsed = self._parse(one.schema, references)
        return one.parsed, one.model

    def _encode_otherwise(self, value: Any, error: Exception) -> bytes:
        cls = type(value) if len(self._written) > 1 else next(iter(self._written), None)
        found = self._written.get(cls)
        if found is None:
            known = ", ".join(each.__name__ for each in self._written if each is not None)
            raise DoesNotFit("value", f"expected one of {known}, got {shown(value)}") from None
        schema, prefix = found
        place = _place(schema.name)
        if isinstance(value, Mapping) and self._model is not UNTYPED:
            # a dict in place of the type: it is checked against the schema alone
            write = self._untyped.get(cls)
            if write is None:
                write = self._untyped[cls] = compile_writer(schema.root, UNTYPED, prefix)
            try:
                return write(value)
            except MISFITS:
                fault = find_fault(schema.root, UNTYPED, value, place)
        else:
            part = next((one for one in self._schemas if one.cls is cls), None)
            fault = find_fault(
                schema.root, self._model if part is None else part.model, value, place
            )
        raise fault or DoesNotFit(place, f"{error} in {shown(value)}") from None


def _text(schema: GivenSchema) -> str:
    if isinstance(schema, Path):
        return schema.read_text(encoding="utf-8")
    if isinstance(schema, str):
        return schema
    return json.dumps(schema, ensure_ascii=False)


def _name(text: str) -> str | None:
    try:
        found: Json = json.loads(text)
    except ValueError as error:
        raise InvalidSchema(f"not JSON: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("name"), str):
        return None
    space = found.get("namespace")
    return f"{space}.{found['name']}" if space else str(found["name"])


def _place(name: str | None) -> str:
    """``shop.Order`` is called ``order`` in paths."""
    short = (name or "value").rpartition(".")[2]
    return short[:1].lower() + short[1:]
