"""Random Protobuf files, changes to them, and messages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any, TypeAlias

SCALARS = ("int32", "int64", "uint32", "bool", "sint32", "sint64", "string", "bytes", "double")
MESSAGES = ("M1", "M2", "M3")
WIDER = {"int32": "int64", "sint32": "sint64", "string": "bytes", "uint32": "uint64"}


@dataclass(frozen=True)
class GeneratedField:
    name: str
    type: str
    label: str = ""
    oneof: str = ""

    @property
    def is_plain(self) -> bool:
        return self.type in SCALARS and not self.label and not self.oneof


File: TypeAlias = dict[str, dict[int, GeneratedField]]


class ProtoGenerator:
    """Messages by name, their fields by number."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def file(self) -> File:
        names = MESSAGES[: self._random.randint(1, 3)]
        return {
            name: {
                number: self._field(number, names)
                for number in self._random.sample(range(1, 6), self._random.randint(0, 4))
            }
            for name in names
        }

    def _field(self, number: int, messages: tuple[str, ...]) -> GeneratedField:
        random = self._random
        kind = random.choice((*SCALARS, *messages, "E"))
        label = random.choice(["", "", "", "repeated", "optional"])
        if kind in messages and label == "optional":
            label = ""
        oneof = "choice" if not label and random.random() < 0.2 else ""
        return GeneratedField(f"f{number}", kind, label, oneof)

    def changed(self, file: File) -> File:
        random = self._random
        new = {name: dict(fields) for name, fields in file.items()}
        for _ in range(random.randint(1, 2)):
            fields = new[random.choice(sorted(new))]
            choice = random.random()
            number = random.randint(1, 5)
            if choice < 0.3 or not fields:
                fields.setdefault(number, self._field(number, tuple(new)))
            elif choice < 0.5:
                del fields[random.choice(sorted(fields))]
            else:
                number = random.choice(sorted(fields))
                field = fields[number]
                if choice < 0.7:
                    fields[number] = replace(field, type=WIDER.get(field.type, field.type))
                elif choice < 0.8:
                    fields[number] = self._field(number, tuple(new))
                elif choice < 0.9:
                    fields[number] = replace(field, oneof="")
                else:
                    fields[number] = replace(field, name=f"renamed{number}")
        return new

    def text(self, file: File) -> str:
        lines = ['syntax = "proto3"; package p; enum E { ZERO = 0; ONE = 1; }']
        for name, fields in file.items():
            lines.append(f"message {name} {{")
            grouped = [n for n, field in fields.items() if field.oneof]
            lines += [self._line(n, field) for n, field in fields.items() if not field.oneof]
            if grouped:
                members = "".join(self._line(number, fields[number]) for number in grouped)
                lines.append(f"oneof choice {{ {members} }}")
            lines.append("}")
        return "\n".join(lines)

    def _line(self, number: int, field: GeneratedField) -> str:
        return f"{field.label} {field.type} {field.name} = {number};"


def fill(message: Any, random: Random, depth: int = 3) -> None:
    """Sets about half of the fields of a message."""
    for field in message.DESCRIPTOR.fields:
        if random.random() < 0.4:
            continue
        values = [_value(message, field, random, depth) for _ in range(random.randint(1, 2))]
        if field.message_type is not None:
            if depth and not field.is_repeated:
                fill(getattr(message, field.name), random, depth - 1)
            elif depth:
                fill(getattr(message, field.name).add(), random, depth - 1)
        elif field.is_repeated:
            getattr(message, field.name).extend(values)
        else:
            setattr(message, field.name, values[0])


def _value(message: Any, field: Any, random: Random, depth: int) -> Any:
    if field.enum_type is not None:
        return random.choice([0, 1])
    kinds: dict[int, Any] = {
        field.CPPTYPE_BOOL: True,
        field.CPPTYPE_DOUBLE: 1.5,
        field.CPPTYPE_STRING: b"text" if field.type == field.TYPE_BYTES else "text",
    }
    return kinds.get(field.cpp_type, random.randint(0, 2**31 - 1))
