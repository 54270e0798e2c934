"""A registry in miniature, written anew: what the records of ``_schemas`` say after each write."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

DEFAULT_LEVEL = "BACKWARD"


class RawRecord(NamedTuple):
    key: bytes
    value: bytes | None
    timestamp_ms: int


class Write(NamedTuple):
    """One transaction of the topic, from ``offset`` on."""

    offset: int
    records: list[RawRecord]


class Version(NamedTuple):
    id: int
    schema: str
    deleted: bool


@dataclass
class Model:
    """What a registry has to know. ``faults``: what no registry should have written."""

    subjects: dict[str, dict[int, Version]] = field(default_factory=dict)
    levels: dict[str, str] = field(default_factory=dict)
    meanings: dict[int, str] = field(default_factory=dict)
    """Of every id that was ever given."""
    faults: list[str] = field(default_factory=list)

    def copy(self) -> Model:
        return replace(
            self,
            subjects={name: dict(versions) for name, versions in self.subjects.items()},
            levels=dict(self.levels),
            meanings=dict(self.meanings),
            faults=[],
        )

    def versions(self, subject: str, *, deleted: bool = False) -> dict[int, Version]:
        """By number, in order."""
        found = sorted(self.subjects.get(subject, {}).items())
        return {number: version for number, version in found if deleted or not version.deleted}

    def level(self, subject: str) -> str:
        return self.levels.get(subject) or self.levels.get("") or DEFAULT_LEVEL

    def ids(self) -> dict[int, str]:
        """Of schemas that are not gone for good."""
        return {
            version.id: version.schema
            for versions in self.subjects.values()
            for version in versions.values()
        }

    # records

    def apply(self, record: RawRecord) -> None:
        key = json.loads(record.key)
        value = _decoded(record.value)
        subject = key.get("subject") or ""
        match key["keytype"]:
            case "SCHEMA" if value is None:
                versions = self.subjects.get(subject, {})
                versions.pop(key["version"], None)
                if not versions:
                    self.subjects.pop(subject, None)
            case "SCHEMA":
                self._put(subject, key["version"], value)
            case "DELETE_SUBJECT" if value is not None:
                for number, version in self.versions(subject).items():
                    if number <= value["version"]:
                        self.subjects[subject][number] = version._replace(deleted=True)
            case "CONFIG" if value is None:
                self.levels.pop(subject, None)
            case "CONFIG":
                self.levels[subject] = value["compatibilityLevel"]

    def _put(self, subject: str, number: int, value: dict[str, Any]) -> None:
        version = Version(value["id"], value["schema"], value.get("deleted", False))
        versions = self.subjects.setdefault(subject, {})
        old = versions.get(number)
        if old is None and number <= max(versions, default=0):
            self.faults.append(f"version {number} of {subject} comes after {max(versions)}")
        if old is not None and old[:2] != version[:2]:
            self.faults.append(f"version {number} of {subject} was {old} and became {version}")
        known = self.meanings.get(version.id)
        if known is None and version.id != max(self.meanings, default=0) + 1:
            self.faults.append(f"id {version.id} is not the next one")
        if known is not None and known != version.schema:
            self.faults.append(f"id {version.id} was {known} and became {version.schema}")
        for other, meaning in self.meanings.items():
            if meaning == version.schema and other != version.id and other in self.ids():
                self.faults.append(f"{meaning} has id {other} and got id {version.id}")
        self.meanings[version.id] = version.schema
        versions[number] = version


def _decoded(data: bytes | None) -> Any:
    return None if data is None else json.loads(data)


def states_of(writes: Iterable[Write]) -> list[Model]:
    """The state before the first write, and after each."""
    states = [Model()]
    for write in writes:
        state = states[-1].copy()
        for record in write.records:
            state.apply(record)
        states.append(state)
    return states


def faults_of(states: Sequence[Model]) -> list[str]:
    return [fault for state in states for fault in state.faults]
