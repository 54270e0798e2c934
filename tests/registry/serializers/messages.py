"""Protobuf message classes as protoc generates them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message_factory import GetMessageClass

ORDERS = """syntax = "proto3";
package shop;
import "shop/money.proto";
import "google/protobuf/timestamp.proto";
message Order {
  message Line { string sku = 1; int32 count = 2; }
  enum Kind { NEW = 0; PAID = 1; }
  string id = 1;
  repeated Line lines = 2;
  map<string, Line> by_name = 3;
  Money total = 4;
  google.protobuf.Timestamp at = 5;
  Kind kind = 6;
  oneof who { string account = 7; int64 number = 8; }
}
message Cancel { string id = 1; message Reason { string text = 1; } }
"""
MONEY = """syntax = "proto3";
package shop;
message Money { int64 units = 1; string currency = 2; }
"""
FILES = {"shop/orders.proto": ORDERS, "shop/money.proto": MONEY}


def message_classes(files: dict[str, str], *names: str) -> list[Any]:
    """Classes by full name, in a descriptor pool of their own."""
    protoc = pytest.importorskip("grpc_tools.protoc", reason="pip install grpcio-tools")
    with tempfile.TemporaryDirectory() as work:
        for name, text in files.items():
            path = Path(work, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        out = Path(work, "set")
        include = Path(protoc.__file__).parent / "_proto"
        arguments = [
            f"-I{work}",
            f"-I{include}",
            f"--descriptor_set_out={out}",
            "--include_imports",
        ]
        assert protoc.main(["protoc", *arguments, *files]) == 0
        found = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in found.file:
        pool.AddSerializedFile(file.SerializeToString())
    return [GetMessageClass(pool.FindMessageTypeByName(name)) for name in names]
