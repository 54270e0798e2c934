"""Whatever is done to a registry: ids keep their meaning, and a restart loses nothing."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from onceward.registry.entities import Content
from onceward.registry.errors import RegistryError
from onceward.registry.schemas import Reference
from onceward.registry.state import State
from onceward.registry.subjects import context_of

from .direct import Direct, compacted, replayed

SUBJECTS = st.sampled_from(["a", "b", ":.lab:a", ":.lab:c"])
SCOPES = st.sampled_from(["", "a", "b", ":.lab:", ":.lab:a"])
NUMBERS = st.integers(0, 5)
VERSIONS = st.integers(-1, 6)


def schema(number: int) -> str:
    return json.dumps({"type": "fixed", "name": f"F{number}", "size": 1})


def referring(number: int) -> str:
    return json.dumps({"type": "array", "items": f"F{number}"})


def picture(state: State) -> Any:
    """Everything a client can see."""
    return {
        "versions": [
            (one.subject, one.version, one.id, one.deleted, one.content)
            for subject in sorted(state.subjects)
            for one in state.versions(subject, deleted=True)
        ],
        "ids": {
            context: {number: state.entry(context, number) for number in state.ids(context)}
            for context in state.contexts
        },
        "highest": {context: state.highest_id(context) for context in state.contexts},
        "config": {scope: state.config(scope) for scope in ("", "a", "b", ":.lab:", ":.lab:a")},
        "mode": {scope: state.mode(scope) for scope in ("", "a", "b", ":.lab:", ":.lab:a")},
    }


class RegistryUse(RuleBasedStateMachine):
    """A client that does anything; refusals are fine, wrong effects are not."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = Direct()
        self.registry.apply(self.registry.machine.set_config("", {"compatibilityLevel": "NONE"}))
        self.given: dict[tuple[str, int], Content] = {}
        """What each id was ever answered to stand for."""

    def _note(self, subject: str, schema_id: int, content: Content) -> None:
        known = self.given.setdefault((context_of(subject), schema_id), content)
        assert known == content, f"id {schema_id} was given twice"

    @rule(subject=SUBJECTS, number=NUMBERS)
    def register(self, subject: str, number: int) -> None:
        try:
            version = self.registry.register(subject, schema(number))
        except RegistryError as error:
            assert error.code == 42205
            return
        self._note(subject, version.id, version.content)
        found = self.registry.machine.state.version(subject, version.version)
        assert found is not None and not found.deleted

    @rule(subject=SUBJECTS, to=SUBJECTS, version=VERSIONS, number=NUMBERS)
    def register_with_reference(self, subject: str, to: str, version: int, number: int) -> None:
        reference = Reference(f"F{number}", to, version)
        try:
            made = self.registry.register(subject, referring(number), references=[reference])
        except RegistryError as error:
            assert error.code in (42201, 42205)
            return
        self._note(subject, made.id, made.content)

    @rule(subject=SUBJECTS, number=NUMBERS, id=st.integers(1, 9), version=VERSIONS)
    def import_schema(self, subject: str, number: int, id: int, version: int) -> None:
        context = context_of(subject)
        if self.given.get((context, id)) is not None:
            return  # an import may give an id that was erased another meaning: it says so itself
        try:
            made = self.registry.register(subject, schema(number), id=id, version=version)
        except RegistryError as error:
            assert error.code in (42205, 42207)
            return
        self._note(subject, made.id, made.content)

    @rule(subject=SUBJECTS, permanent=st.booleans())
    def delete_subject(self, subject: str, permanent: bool) -> None:
        try:
            self.registry.delete(subject, permanent=permanent)
        except RegistryError as error:
            assert error.code in (40401, 40404, 40405, 42205, 42206)

    @rule(subject=SUBJECTS, version=VERSIONS, permanent=st.booleans())
    def delete_version(self, subject: str, version: int, permanent: bool) -> None:
        try:
            self.registry.delete(subject, version, permanent=permanent)
        except RegistryError as error:
            assert error.code in (40401, 40402, 40406, 40407, 42205, 42206)

    @rule(scope=SCOPES, mode=st.sampled_from(["READWRITE", "READONLY", "IMPORT"]))
    def set_mode(self, scope: str, mode: str) -> None:
        try:
            self.registry.apply(self.registry.machine.set_mode(scope, mode, force=False))
        except RegistryError as error:
            assert error.code == 42205

    @rule(scope=SCOPES, normalize=st.booleans())
    def set_config(self, scope: str, normalize: bool) -> None:
        machine = self.registry.machine
        try:
            self.registry.apply(machine.set_config(scope, {"normalize": normalize}))
        except RegistryError as error:
            assert error.code == 42205

    @rule(compact=st.booleans())
    def restart(self, compact: bool) -> None:
        before = picture(self.registry.machine.state)
        if compact:
            self.registry.log = compacted(self.registry.log)
        self.registry.machine = replayed(self.registry.log)
        assert picture(self.registry.machine.state) == before

    @invariant()
    def every_reference_leads_somewhere(self) -> None:
        state = self.registry.machine.state
        for subject in state.subjects:
            for version in state.versions(subject, deleted=True):
                for target in state.targets(version):
                    assert state.version(*target) is not None

    @invariant()
    def ids_and_versions_agree(self) -> None:
        state = self.registry.machine.state
        for subject in state.subjects:
            for version in state.versions(subject, deleted=True):
                entry = state.entry(context_of(subject), version.id)
                assert entry is not None and entry.content == version.content
                assert version.id <= state.highest_id(context_of(subject))


TestRegistryUse = RegistryUse.TestCase
TestRegistryUse.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
