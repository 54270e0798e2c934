"""Custom options of a serialized descriptor, made readable.

In a descriptor protoc made, a custom option is an unknown field until the file that defines it is
known. Here its definition comes from the references, or from the file itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from .parser import FileProto


def with_readable_options(file: FileProto, files: Iterable[FileProto]) -> FileProto:
    """The file with every custom option whose definition is in ``files`` or ``file`` as a field.

    Options nobody defines stay unknown, and are left out where the file is printed. The result is
    of another class than ``FileProto`` when there are any, and is for printing only.
    """
    pool = DescriptorPool()
    by_name = {one.name: one for one in files}
    if "google/protobuf/descriptor.proto" not in by_name:
        return file
    waiting = list(by_name.values())
    added: set[str] = set()
    try:
        while waiting:
            ready = [one for one in waiting if added.issuperset(one.dependency)]
            if not ready:
                return file
            for one in ready:
                pool.AddSerializedFile(one.SerializeToString())
                added.add(one.name)
            waiting = [one for one in waiting if one.name not in added]
        pool.AddSerializedFile(file.SerializeToString())
        descriptor = pool.FindMessageTypeByName(
            descriptor_pb2.FileDescriptorProto.DESCRIPTOR.full_name
        )
        readable = message_factory.GetMessageClass(descriptor).FromString(file.SerializeToString())
    except (TypeError, DecodeError, KeyError):
        return file  # a file that is wrong is found wrong by the checks, with a better reason
    return cast(FileProto, readable)
