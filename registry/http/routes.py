"""The table of everything the registry answers; the OpenAPI document is made from it."""

from __future__ import annotations

from . import schema_handlers as schemas
from . import setting_handlers as settings
from . import subject_handlers as subjects
from .router import Route

_PAGE = ("offset", "limit")
_VERSION = "/subjects/{subject}/versions/{version}"
_CHECK = "/compatibility/subjects/{subject}/versions"

ROUTES = (
    Route("GET", "/", settings.root, "Answers that the registry is there"),
    Route(
        "GET",
        "/subjects",
        subjects.list_subjects,
        "Names of subjects",
        ("deleted", "deletedOnly", "subjectPrefix", *_PAGE),
    ),
    Route(
        "GET",
        "/subjects/{subject}/versions",
        subjects.list_versions,
        "Version numbers of a subject",
        ("deleted", "deletedOnly", "deletedAsNegative", *_PAGE),
    ),
    Route(
        "POST",
        "/subjects/{subject}/versions",
        subjects.register,
        "Register a schema",
        ("normalize", "format"),
        writes=True,
        body="Schema",
    ),
    Route(
        "POST",
        "/subjects/{subject}",
        subjects.look_up,
        "Find the version a schema is registered as",
        ("normalize", "deleted", "format"),
        body="Schema",
    ),
    Route(
        "DELETE",
        "/subjects/{subject}",
        subjects.delete_subject,
        "Delete a subject",
        ("permanent",),
        writes=True,
    ),
    Route(
        "GET",
        "/subjects/{subject}/metadata",
        subjects.find_by_metadata,
        "The newest version with these metadata properties",
        ("key", "value", "deleted", "format"),
    ),
    Route(
        "GET",
        _VERSION,
        subjects.get_version,
        "One version of a subject",
        ("deleted", "format", "referenceFormat"),
    ),
    Route(
        "DELETE",
        _VERSION,
        subjects.delete_version,
        "Delete one version",
        ("permanent",),
        writes=True,
    ),
    Route(
        "GET",
        f"{_VERSION}/schema",
        subjects.get_version_schema,
        "The bare schema of one version",
        ("deleted", "format"),
    ),
    Route(
        "GET",
        f"{_VERSION}/referencedby",
        subjects.referenced_by,
        "Ids of the schemas that refer to a version",
        ("deleted", *_PAGE),
    ),
    Route(
        "GET",
        "/schemas",
        schemas.list_schemas,
        "Versions of all subjects",
        ("subjectPrefix", "deleted", "latestOnly", "aliases", *_PAGE),
    ),
    Route("GET", "/schemas/types", schemas.schema_types, "Kinds of schemas"),
    Route(
        "GET",
        "/schemas/ids/{id}",
        schemas.get_schema,
        "A schema by its id",
        ("subject", "format", "referenceFormat", "fetchMaxId"),
    ),
    Route(
        "GET",
        "/schemas/ids/{id}/schema",
        schemas.get_schema_text,
        "The bare schema with an id",
        ("subject", "format"),
    ),
    Route(
        "GET",
        "/schemas/ids/{id}/versions",
        schemas.versions_of_id,
        "Versions that have an id",
        ("subject", "deleted", *_PAGE),
    ),
    Route(
        "GET",
        "/schemas/ids/{id}/subjects",
        schemas.subjects_of_id,
        "Subjects that have an id",
        ("subject", "deleted", *_PAGE),
    ),
    Route("GET", "/schemas/guids/{guid}", schemas.get_by_guid, "A schema by its GUID", ("format",)),
    Route("GET", "/schemas/guids/{guid}/ids", schemas.ids_of_guid, "Ids of a GUID by context"),
    Route(
        "GET",
        "/contexts",
        schemas.list_contexts,
        "Names of contexts",
        ("contextPrefix", *_PAGE),
    ),
    Route(
        "POST",
        f"{_CHECK}/{{version}}",
        settings.check_version,
        "Whether a schema is compatible with one version",
        ("verbose", "normalize"),
        body="Schema",
    ),
    Route(
        "POST",
        _CHECK,
        settings.check_subject,
        "Whether a schema may be registered",
        ("verbose", "normalize"),
        body="Schema",
    ),
    Route("GET", "/config", settings.get_config, "The config for all", ("defaultToGlobal",)),
    Route("PUT", "/config", settings.put_config, "Set it", writes=True, body="Config"),
    Route("DELETE", "/config", settings.delete_config, "Back to the default", writes=True),
    Route(
        "GET",
        "/config/{subject}",
        settings.get_config,
        "The config of a subject",
        ("defaultToGlobal",),
    ),
    Route("PUT", "/config/{subject}", settings.put_config, "Set it", writes=True, body="Config"),
    Route("DELETE", "/config/{subject}", settings.delete_config, "Remove it", writes=True),
    Route("GET", "/mode", settings.get_mode, "The mode for all", ("defaultToGlobal",)),
    Route("PUT", "/mode", settings.put_mode, "Set it", ("force",), writes=True, body="Mode"),
    Route("DELETE", "/mode", settings.delete_mode, "Remove it", ("recursive",), writes=True),
    Route(
        "GET", "/mode/{subject}", settings.get_mode, "The mode of a subject", ("defaultToGlobal",)
    ),
    Route(
        "PUT",
        "/mode/{subject}",
        settings.put_mode,
        "Set it",
        ("force",),
        writes=True,
        body="Mode",
    ),
    Route(
        "DELETE", "/mode/{subject}", settings.delete_mode, "Remove it", ("recursive",), writes=True
    ),
    Route(
        "GET",
        "/associations/resources/{namespace}/{name}",
        settings.no_associations,
        "Subjects associated with a topic: none",
    ),
    Route("GET", "/v1/metadata/id", settings.server_id, "Names of the cluster"),
    Route("GET", "/v1/metadata/version", settings.server_version, "The version of the interface"),
)
