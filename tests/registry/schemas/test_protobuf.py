"""Protobuf schemas: text and descriptors in and out, checked against protoc."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from google.protobuf import descriptor_pb2, message_factory

from onceward.registry.compatibility import can_read
from onceward.registry.schemas import InvalidSchema, Reference, ResolvedReference, SchemaType
from onceward.registry.schemas.protobuf.printer import json_name
from onceward.registry.schemas.protobuf.schema import ProtobufSchema

FileProto = descriptor_pb2.FileDescriptorProto
MessageProto = descriptor_pb2.DescriptorProto
Compile: TypeAlias = Callable[[str], FileProto | None]

GOOD = {
    "defaults": """
        message A {
          optional int32 a = 1 [default = 0x10]; optional string s = 2 [default = "x\\n\\"é"];
          optional bytes b = 3 [default = "\\xff\\001a"]; optional double d = 4 [default = -1.5e3];
          optional float f = 5 [default = inf]; optional E e = 6 [default = Y];
          optional bool g = 7 [default = true]; optional int64 h = 8 [default = -9];
          enum E { X = 1; Y = 2; }
        }""",
    "groups": """
        syntax = "proto2";
        message A {
          optional group Foo = 1 { optional int32 x = 1; }
          message Between {}
          repeated group Bar = 2 { required string y = 1; }
          oneof o { group Qux = 3 { optional int32 z = 1; } int32 plain = 4; }
        }""",
    "proto3": """
        syntax = "proto3"; package a.b;
        message A {
          optional int32 x = 1; oneof o { string s = 2; B b = 3; }
          message B { A a = 1; .a.b.A.B c = 2; repeated int32 r = 3 [packed = false]; }
          map<string, B> m = 4; map<int32, E> some_map = 5;
          enum E { Z = 0; }
          reserved 10, 12 to 15, 100 to max; reserved "foo", "bar";
        }""",
    "enums": """
        syntax = "proto3";
        enum E { option allow_alias = true; A = 0; B = 0; C = -5; reserved 7, 9 to max;
                 reserved "Q"; }""",
    "extensions": """
        message A { extensions 100 to 199, 500 to max; optional int32 a = 1; }
        extend A { optional string ext = 100; repeated A more = 101; }
        message B { extend A { optional B b = 102; } }""",
    "services": """
        syntax = "proto3"; message Rq {}
        service S {
          option deprecated = true;
          rpc A (Rq) returns (stream Rq);
          rpc B (stream Rq) returns (Rq) { option idempotency_level = IDEMPOTENT; }
        }""",
    "imports and options": """
        syntax = "proto3";
        import "google/protobuf/timestamp.proto"; import public "google/protobuf/any.proto";
        option java_package = "x.y"; option java_multiple_files = true; option optimize_for = SPEED;
        message A {
          google.protobuf.Timestamp t = 1 [deprecated = true, json_name = "at"];
          google.protobuf.Any y = 2;
        }""",
    "words as names": """
        message message {
          required string message = 1; optional int32 optional = 2; optional string package = 4;
          optional int32 option = 5; optional int32 reserved = 6; optional int32 map = 7;
          optional int32 group = 8; optional int32 to = 10; optional int32 max = 11;
        }""",
    "inner scope first": """
        syntax = "proto3"; package foo;
        message Outer { message foo {} foo x = 1; }
        message Bar { .foo.Outer.foo y = 1; Outer.foo z = 2; }""",
    "editions": """
        edition = "2023"; option features.field_presence = IMPLICIT;
        message A {
          int32 x = 1 [features.field_presence = EXPLICIT]; repeated int32 r = 3;
          reserved foo, bar; reserved 9; enum E { option features.enum_type = CLOSED; Z = 1; }
        }""",
    "odd spelling": """
        syntax = 'proto3';; /* c */ message A { string s = 0x1; // d
        ; string t = 02 [json_name = 'a' "b"]; }""",
    "empty": "",
}

BAD = [
    'syntax = "proto3"; message A { int32 x = 1; int32 y = 1; }',
    'syntax = "proto3"; message A { int32 x = 1; int32 x = 2; }',
    'syntax = "proto3"; message A { int32 x = 0; }',
    'syntax = "proto3"; message A { int32 x = 536870912; }',
    'syntax = "proto3"; message A { int32 x = 19500; }',
    'syntax = "proto3"; message A { required int32 x = 1; }',
    'syntax = "proto3"; message A { reserved 1; int32 x = 1; }',
    'syntax = "proto3"; message A { reserved "x"; int32 x = 1; }',
    'syntax = "proto3"; message A { reserved 1 to 5, 3; }',
    'syntax = "proto3"; message A { Foo x = 1; }',
    'syntax = "proto3"; message A { A.B x = 1; }',
    'syntax = "proto3"; enum E { A = 1; }',
    'syntax = "proto3"; enum E { A = 0; B = 0; }',
    'syntax = "proto3"; enum E { }',
    'syntax = "proto3"; enum E { A = 0; } enum F { A = 0; }',
    'syntax = "proto3"; message A { oneof o { } }',
    'syntax = "proto3"; message A { oneof o { repeated int32 x = 1; } }',
    'syntax = "proto3"; message A { map<double, int32> m = 1; }',
    'syntax = "proto3"; message A { repeated map<int32, int32> m = 1; }',
    'syntax = "proto3"; message A { map<int32, int32> m = 1; message MEntry {} }',
    'syntax = "proto3"; message A { int32 x = 1 [default = 3]; }',
    'syntax = "proto3"; message A { extensions 5 to 9; }',
    'syntax = "proto3"; message A { string s = 1 [packed = true]; }',
    'syntax = "proto3"; message A { int32 foo_bar = 1; int32 fooBar = 2; }',
    'syntax = "proto4"; message A { }',
    'syntax = "proto3"; import "nope.proto"; message A { }',
    'syntax = "proto3"; import "google/protobuf/any.proto"; import "google/protobuf/any.proto";',
    'syntax = "proto3"; package a; package b; message A { }',
    'syntax = "proto3"; message A { int32 x = 1 }',
    'syntax = "proto3"; message A { int32 x = 1;',
    'syntax = "proto3"; message A { string s = 1; }}',
    'syntax = "proto3"; message A { google.protobuf.Timestamp t = 1; }',
    'syntax = "proto3"; message 1A { }',
    'syntax = "proto3"; message A { } message A { }',
    'syntax = "proto3"; option optimize_for = FOO; message A { }',
    'syntax = "proto3"; message A { int32 x = 1; } extend A { int32 y = 2; }',
    'syntax = "proto3"; service S { rpc A (Nope) returns (Nope); }',
    "message A { int32 x = 1; }",
    "message A { optional int32 x = 1 [foo = 3]; }",
    "message A { optional int32 x = 1 [deprecated = 3]; }",
    "message A { optional E e = 1 [default = Q]; enum E { A1 = 0; } }",
    "message A { optional bool e = 1 [default = 3]; }",
    'message A { optional int32 e = 1 [default = "x"]; }',
    "message A { repeated int32 e = 1 [default = 9]; }",
    "message A { extensions 100 to 110; } extend A { optional int32 y = 2; }",
    'edition = "2023"; message A { optional int32 x = 1; }',
    'edition = "1999"; message A { }',
]


@pytest.fixture
def protoc(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Compile]:
    """Compiles a text with protoc; None when it refuses it."""
    grpc_tools = pytest.importorskip("grpc_tools")
    compiler = pytest.importorskip("grpc_tools.protoc")

    included = os.path.join(os.path.dirname(grpc_tools.__file__), "_proto")

    def compile_text(text: str) -> FileProto | None:
        (tmp_path / "t.proto").write_text(text, encoding="utf-8")
        arguments = [
            "protoc",
            f"-I{tmp_path}",
            f"-I{included}",
            f"--descriptor_set_out={tmp_path}/o",
        ]
        if compiler.main([*arguments, "t.proto"]) != 0:
            return None
        data = (tmp_path / "o").read_bytes()
        return descriptor_pb2.FileDescriptorSet.FromString(data).file[0]

    yield compile_text
    capfd.readouterr()


def comparable(file: FileProto) -> FileProto:
    """Without what does not matter: file name, order of fields, JSON names, the word proto2."""
    copy = FileProto()
    copy.CopyFrom(file)
    copy.ClearField("name")
    if copy.syntax == "proto2":
        copy.ClearField("syntax")
    for field in copy.extension:
        field.ClearField("json_name")
    for message in copy.message_type:
        _simplify(message)
    return copy


def _simplify(message: MessageProto) -> None:
    for field in (*message.field, *message.extension):
        if field.json_name == json_name(field.name) or field.extendee:
            field.ClearField("json_name")
    fields = sorted(message.field, key=lambda field: field.number)
    copies = [descriptor_pb2.FieldDescriptorProto.FromString(f.SerializeToString()) for f in fields]
    del message.field[:]
    message.field.extend(copies)
    for nested in message.nested_type:
        _simplify(nested)


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD.keys())
def test_text_becomes_the_descriptor_protoc_makes_of_it(text: str, protoc: Compile) -> None:
    expected = protoc(text)
    assert expected is not None
    parsed = ProtobufSchema.parse(text)
    assert comparable(parsed.file) == comparable(expected)
    again = ProtobufSchema.parse(parsed.canonical)
    assert again.canonical == parsed.canonical
    assert comparable(again.file) == comparable(expected)


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD.keys())
def test_a_serialized_descriptor_is_the_same_schema_as_the_text(text: str, protoc: Compile) -> None:
    expected = protoc(text)
    assert expected is not None
    if not text:
        return  # an empty text is no descriptor
    sent = ProtobufSchema.parse(base64.b64encode(expected.SerializeToString()).decode())
    assert comparable(sent.file) == comparable(expected)
    written = ProtobufSchema.parse(text)
    assert sent.normalized().canonical == written.normalized().canonical
    assert ProtobufSchema.parse(sent.canonical).canonical == sent.canonical
    assert not can_read(sent, written) and not can_read(written, sent)
    returned = FileProto.FromString(base64.b64decode(sent.formatted("serialized")))
    assert comparable(returned) == comparable(expected)


@pytest.mark.parametrize("text", BAD)
def test_what_protoc_refuses_is_refused(text: str, protoc: Compile) -> None:
    assert protoc(text) is None
    with pytest.raises(InvalidSchema):
        ProtobufSchema.parse(text)


def test_the_canonical_text_has_the_layout_of_confluents_registry() -> None:
    text = """
        syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto";
        option java_package = "com.shop";
        enum Kind { UNKNOWN = 0; }   // a comment
        message Order { message Line { int32 n = 1; }
          string id = 1; oneof by { string user = 2; string bot = 3; } repeated Line lines = 4;
          map<string, int32> tags = 5; reserved 9; google.protobuf.Timestamp at = 6;
          optional Kind kind = 7 [deprecated = true]; }"""
    assert ProtobufSchema.parse(text).canonical == (
        'syntax = "proto3";\npackage shop;\n\nimport "google/protobuf/timestamp.proto";\n\n'
        'option java_package = "com.shop";\n\nmessage Order {\n  reserved 9;\n\n'
        "  string id = 1;\n  repeated Line lines = 4;\n  message Line {\n    int32 n = 1;\n  }\n"
        "  map<string, int32> tags = 5;\n  google.protobuf.Timestamp at = 6;\n"
        "  optional Kind kind = 7 [deprecated = true];\n\n"
        "  oneof by {\n    string user = 2;\n    string bot = 3;\n  }\n}\n"
        "enum Kind {\n  UNKNOWN = 0;\n}\n"
    )


def test_message_indexes_survive_storing() -> None:
    """Entries of maps count as nested messages, so their order must not change."""
    text = 'syntax = "proto3"; message A { message B {} map<int32, B> m = 1; message C {} }'
    parsed = ProtobufSchema.parse(text)
    stored = ProtobufSchema.parse(parsed.canonical)
    names = [nested.name for nested in stored.file.message_type[0].nested_type]
    assert names == ["B", "MEntry", "C"]


def test_custom_options_are_kept_in_text_and_read_from_descriptors(protoc: Compile) -> None:
    text = """
        syntax = "proto3"; import "google/protobuf/descriptor.proto";
        message Opt { string a = 1; repeated int32 b = 2; }
        extend google.protobuf.FieldOptions { string note = 50001; Opt opt = 50002; }
        message A { string s = 1 [(note) = "hi", (opt) = { a: "x", b: [1, 2] }]; }"""
    assert (
        '[(note) = "hi", (opt) = { a : "x" , b : [ 1 , 2 ] }]'
        in ProtobufSchema.parse(text).canonical
    )
    compiled = protoc(text)
    assert compiled is not None
    sent = ProtobufSchema.parse(base64.b64encode(compiled.SerializeToString()).decode())
    assert '[(note) = "hi", (opt) = { a : "x" b : 1 b : 2 }]' in sent.canonical


def test_confluents_own_files_need_no_reference() -> None:
    text = """
        syntax = "proto3";
        import "confluent/meta.proto"; import "confluent/type/decimal.proto";
        import "google/type/money.proto";
        message A {
          confluent.type.Decimal d = 1 [(confluent.field_meta).doc = "x"]; google.type.Money m = 2;
        }"""
    assert '(confluent.field_meta).doc = "x"' in ProtobufSchema.parse(text).canonical


def test_imports_come_from_the_references_public_ones_included() -> None:
    texts = {
        "a.proto": 'syntax = "proto3"; package a; message A { int32 x = 1; }',
        "b.proto": 'syntax = "proto3"; import public "a.proto";',
        "c.proto": 'syntax = "proto3"; import "a.proto";',
    }
    resolved = [
        ResolvedReference(Reference(name, name, 1), SchemaType.PROTOBUF, text)
        for name, text in texts.items()
    ]
    use = 'syntax = "proto3"; import "{}"; message M {{ a.A a = 1; }}'
    schema = ProtobufSchema.parse(use.format("b.proto"), (), resolved)
    assert schema.file.message_type[0].field[0].type_name == ".a.A"
    with pytest.raises(InvalidSchema, match=r"a\.A"):
        ProtobufSchema.parse(use.format("c.proto"), (), resolved)


def test_messages_can_be_made_of_a_schema() -> None:
    text = 'syntax = "proto3"; package p; message A { message B { int32 n = 1; } B b = 1; }'
    schema = ProtobufSchema.parse(text)
    assert schema.name == "p.A"
    made = message_factory.GetMessageClass(schema.pool().FindMessageTypeByName("p.A"))
    message: Any = made()
    message.b.n = 5
    assert message.SerializeToString() == b"\x0a\x02\x08\x05"


def test_an_error_says_line_and_column() -> None:
    with pytest.raises(InvalidSchema) as caught:
        ProtobufSchema.parse('syntax = "proto3";\nmessage A {\n  int32 x 1;\n}')
    assert caught.value.path == "3:11"


@pytest.mark.parametrize(
    "text",
    [
        "message A {" * 10_000,
        "/*" * 400_000,
        '"' * 50_000,
        "option (a) = " + "{ a" * 20_000,
        'syntax = "proto3"; package ' + ".".join(["a"] * 20_000) + ";",
        "".join(f'import "a{number}.proto";' for number in range(5_000)),
        "A" * 900_000,
    ],
    ids=["nested", "comment", "quotes", "aggregate", "package", "imports", "base64"],
)
def test_hostile_text_is_refused_in_bounded_time(text: str) -> None:
    with pytest.raises(InvalidSchema):
        ProtobufSchema.parse(text)
