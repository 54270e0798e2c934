"""``/config``, ``/mode``, ``/compatibility`` and what clients ask of a server as a whole."""

from __future__ import annotations

from ..compatibility import LevelVerdict
from ..entities import LATEST
from ..errors import config_not_found, mode_not_found, version_not_found
from ..schemas.json_text import Json
from ..service import RegistryService
from ..settings import READ_WRITE
from ..sources import content_of
from .answers import config_echo, verdict_object
from .bodies import config_changes, mode_of, schema_request
from .call import Call

RELEASE = "8.0.0"
"""The release of Confluent's registry whose REST interface this is."""


async def get_config(service: RegistryService, call: Call) -> Json:
    scope, settings = call.scope, service.machine.settings
    if call.flag("defaultToGlobal"):
        return dict(settings.config_for(scope).members)
    own = settings.own_config(scope)
    if own is None:
        raise config_not_found(scope)
    return own


async def put_config(service: RegistryService, call: Call) -> Json:
    scope, machine = call.scope, service.machine
    changes = config_changes(call.json_object())
    members = await service.change(lambda: machine.set_config(scope, changes))
    return config_echo({name: members.get(name) for name in changes})


async def delete_config(service: RegistryService, call: Call) -> Json:
    scope, machine = call.scope, service.machine
    old = await service.change(lambda: machine.delete_config(scope))
    return dict(old)


async def get_mode(service: RegistryService, call: Call) -> Json:
    scope, machine = call.scope, service.machine
    if call.flag("defaultToGlobal"):
        return {"mode": machine.settings.mode_in_effect(scope)}
    own = machine.state.mode(scope)
    if own is None and scope:
        raise mode_not_found(scope)
    return {"mode": own or READ_WRITE}


async def put_mode(service: RegistryService, call: Call) -> Json:
    scope, machine = call.scope, service.machine
    mode, force = mode_of(call.json_object()), call.flag("force")
    now = await service.change(lambda: machine.set_mode(scope, mode, force=force))
    return {"mode": now}


async def delete_mode(service: RegistryService, call: Call) -> Json:
    scope, machine = call.scope, service.machine
    recursive = call.flag("recursive")
    old = await service.change(lambda: machine.delete_mode(scope, recursive=recursive))
    return {"mode": old}


async def check_version(service: RegistryService, call: Call) -> Json:
    """Against one version, at the level of the subject."""
    subject, number = call.subject, call.version
    state, settings = service.machine.state, service.machine.settings
    versions = state.versions(subject)
    if number == LATEST:
        versions = versions[-1:]
    else:
        versions = [version for version in versions if version.version == number]
        if not versions:
            raise version_not_found(number)
    config = settings.config_for(subject)
    source = service.machine.source(subject, schema_request(call.json_object()))
    normalize = call.flag("normalize") or config.normalize
    parsed = await service.parsed(source, strict=True, normalize=normalize)
    verdict = LevelVerdict(config.level)
    if versions:
        verdict = await service.compare(config, parsed, versions)
    return verdict_object(verdict, verbose=call.flag("verbose"))


async def check_subject(service: RegistryService, call: Call) -> Json:
    """Against the versions the level of the subject asks for."""
    subject, machine = call.subject, service.machine
    config = machine.settings.config_for(subject)
    source = machine.source(subject, schema_request(call.json_object()))
    normalize = call.flag("normalize") or config.normalize
    parsed = await service.parsed(source, strict=True, normalize=normalize)
    versions = machine.candidates(subject, content_of(source, parsed), config)
    verdict = await service.compare(config, parsed, versions)
    return verdict_object(verdict, verbose=call.flag("verbose"))


async def root(service: RegistryService, call: Call) -> Json:
    return {}


async def no_associations(service: RegistryService, call: Call) -> Json:
    """Clients ask before they name a subject; no topic is associated with any, so they go by the
    topic's name."""
    return []


async def server_id(service: RegistryService, call: Call) -> Json:
    clusters: Json = {"kafka-cluster": "", "schema-registry-cluster": "schema-registry"}
    return {"id": "", "scope": {"path": [], "clusters": clusters}}


async def server_version(service: RegistryService, call: Call) -> Json:
    return {"version": RELEASE, "commitId": ""}
