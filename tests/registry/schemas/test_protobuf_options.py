"""Custom options in descriptors, and the files that need no reference."""

from __future__ import annotations

import base64

import pytest
from google.protobuf import descriptor_pb2, message_factory

from onceward.registry.schemas.protobuf.schema import ProtobufSchema
from onceward.registry.schemas.protobuf.well_known import well_known_file

from .test_protobuf import Compile, comparable, protoc

__all__ = ["protoc"]

FileProto = descriptor_pb2.FileDescriptorProto

OPTIONS = """
    syntax = "proto3";
    package p.q;
    import "google/protobuf/descriptor.proto";
    message Opt {
      string a = 1; repeated int32 b = 2; Opt c = 3; E e = 4; bytes d = 5; double f = 6;
      enum E { X = 0; Y = 1; }
    }
    extend google.protobuf.FileOptions { string file = 50001; }
    extend google.protobuf.FieldOptions {
      string note = 50001; Opt opt = 50002; repeated sint32 many = 50003; Opt.E kind = 50004;
      bytes raw = 50005; bool flag = 50006;
    }
    extend google.protobuf.MessageOptions { double weight = 50001; }
    extend google.protobuf.OneofOptions { uint64 one = 50001; }
    extend google.protobuf.EnumOptions { bool en = 50001; }
    extend google.protobuf.EnumValueOptions { float val = 50001; }
    extend google.protobuf.ServiceOptions { int64 ser = 50001; }
    extend google.protobuf.MethodOptions { string met = 50001; }
    option (file) = "f";
    message A {
      option (weight) = -1.5;
      message In { option (.p.q.weight) = inf; string deep = 1 [(q.note) = "x"]; }
      string s = 1 [
        (note) = "h\\"i\\n\\303\\251", (p.q.opt) = { a: "x", b: [1, 2], c { a: 'y' } },
        (opt).c.c.a = "q", (many) = 1, (many) = -2, (kind) = Y, (raw) = "\\377\\000",
        (flag) = true, (opt).e = Y, deprecated = true
      ];
      oneof o { option (one) = 18446744073709551615; int32 i = 2; }
    }
    enum En { option (en) = true; Z = 0 [(val) = 2.5]; }
    service S { option (ser) = -9; rpc M(A) returns (A) { option (met) = "m"; } }
"""


def serialized(text: str) -> FileProto:
    return FileProto.FromString(base64.b64decode(ProtobufSchema.parse(text).serialized()))


def test_custom_options_are_serialized_as_protoc_does(protoc: Compile) -> None:
    expected = protoc(OPTIONS)
    assert expected is not None
    assert comparable(serialized(OPTIONS)) == comparable(expected)


def test_an_option_nobody_defines_is_kept_in_the_text_and_left_out_of_the_descriptor() -> None:
    text = 'syntax = "proto3"; message A { option (nobody) = 1; int32 a = 1 [(none).x = "y"]; }'
    assert "option (nobody) = 1;" in ProtobufSchema.parse(text).canonical
    file = serialized(text)
    assert not file.message_type[0].options.uninterpreted_option
    assert file.message_type[0].field[0].options.ByteSize() == 0


def test_an_option_with_a_value_of_another_type_is_left_out_of_the_descriptor() -> None:
    text = """
        syntax = "proto3"; import "confluent/meta.proto";
        message A {
          string a = 1 [(confluent.field_meta).tags = 5];
          string b = 2 [(confluent.field_meta).nothing = "x"];
        }"""
    first, second = serialized(text).message_type[0].field
    assert (first.options.ByteSize(), second.options.ByteSize()) == (0, 0)


def test_a_tag_of_confluents_meta_reaches_whoever_loads_the_descriptor() -> None:
    """Rules of clients encrypt the fields with such a tag: unseen, they would go out in clear."""
    text = """
        syntax = "proto3"; import "confluent/meta.proto";
        message A {
          string a = 1 [(confluent.field_meta).tags = "PII", (confluent.field_meta).tags = "B"];
        }"""
    schema = ProtobufSchema.parse(text)
    field = serialized(text).message_type[0].field[0]
    pool = schema.pool()
    options = message_factory.GetMessageClass(
        pool.FindMessageTypeByName("google.protobuf.FieldOptions")
    ).FromString(field.options.SerializeToString())
    extension = pool.FindExtensionByName("confluent.field_meta")
    assert list(options.Extensions[extension].tags) == ["PII", "B"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("calendar_period", "CalendarPeriod"), ("color", "Color"), ("date", "Date"),
        ("datetime", "DateTime"), ("dayofweek", "DayOfWeek"), ("decimal", "Decimal"),
        ("expr", "Expr"), ("fraction", "Fraction"), ("interval", "Interval"),
        ("latlng", "LatLng"), ("money", "Money"), ("month", "Month"),
        ("phone_number", "PhoneNumber"), ("postal_address", "PostalAddress"),
        ("quaternion", "Quaternion"), ("timeofday", "TimeOfDay"),
    ],
)  # fmt: skip
def test_the_types_of_google_need_no_reference(file: str, message: str) -> None:
    text = f"""
        syntax = "proto3"; package a; import "google/type/{file}.proto";
        message Use {{ google.type.{message} used = 1; }}"""
    schema = ProtobufSchema.parse(text)
    assert schema.file.message_type[0].field[0].type_name == f".google.type.{message}"
    schema.pool().FindMessageTypeByName("a.Use")


@pytest.mark.parametrize("name", ["confluent/type/variant.proto", "confluent/meta.proto"])
def test_confluents_types_need_no_reference(name: str) -> None:
    assert well_known_file(name) is not None
    assert well_known_file(f"{name}x") is None


ONE_ORDER = """syntax = "proto3";
package p;

option java_multiple_files = true;
option java_package = "x";

message A {
  reserved 4;
  reserved 9 to 10;
  reserved "q", "r";

  option deprecated = true;
  option no_standard_descriptor_accessor = false;

  string a = 1;
  .p.A b = 2;

  oneof second {
    int32 c = 3;
    int32 f = 6;
  }

  oneof first {
    int32 e = 5;
  }

  enum E {
    Z = 0;
    X = 1;
    Y = 2;
  }
}
"""
ANOTHER_ORDER = """
    syntax = "proto3"; package p; option java_package = "x"; option java_multiple_files = true;
    message A {
      reserved 9 to 10, 4; reserved "r", "q";
      oneof first { int32 e = 5; } oneof second { int32 f = 6; int32 c = 3; }
      enum E { Z = 0; Y = 2; X = 1; }
      A b = 2; string a = 1;
      option no_standard_descriptor_accessor = false; option deprecated = true;
    }
"""


def test_normalised_text_has_one_order() -> None:
    normalised = ProtobufSchema.parse(ANOTHER_ORDER).normalized()
    assert normalised.canonical == ONE_ORDER
    again = ProtobufSchema.parse(ONE_ORDER).normalized()
    assert again.canonical == ONE_ORDER


def test_normalising_leaves_every_message_at_its_place() -> None:
    """A map makes a nested message, and records name messages by their place among all."""
    text = """
        syntax = "proto3";
        message A { map<string, int32> a = 2; message N {} map<string, int32> b = 1; }"""
    schema = ProtobufSchema.parse(text)
    again = ProtobufSchema.parse(schema.normalized().canonical)
    names = [nested.name for nested in schema.file.message_type[0].nested_type]
    assert [nested.name for nested in again.file.message_type[0].nested_type] == names
