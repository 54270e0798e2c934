"""What the registry refuses and why, with the error codes of Confluent's REST interface."""

from __future__ import annotations

READ_WRITE_LIMIT = "[1, 2^31-1]"


class RegistryError(Exception):
    """An answer that is not a success: ``code`` is the ``error_code`` of the JSON body.

    The HTTP status is its first three digits.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        return self.code if self.code < 1000 else self.code // 100


class NotLeader(RegistryError):
    """This instance may not write; ``leader`` is the URL of the one that may, if it is known."""

    def __init__(self, leader: str | None) -> None:
        super().__init__(50004, "Leader not known." if leader is None else f"Leader is {leader}.")
        self.leader = leader


class StoreFailed(RegistryError):
    """The topic could not be read or written; a request that is repeated later may succeed."""

    def __init__(self, message: str) -> None:
        super().__init__(50001, f"Error in the backend data store: {message}")


class StoreTimeout(RegistryError):
    """The topic did not answer in time; whether the write took effect is not known."""

    def __init__(self, message: str) -> None:
        super().__init__(50002, f"Operation timed out: {message}")


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(40401, f"Subject '{subject}' not found.")


def version_not_found(version: int | str) -> RegistryError:
    return RegistryError(40402, f"Version {version} not found.")


def schema_not_found(what: str = "") -> RegistryError:
    return RegistryError(40403, f"Schema {what} not found" if what else "Schema not found")


def subject_soft_deleted(subject: str) -> RegistryError:
    text = f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently"
    return RegistryError(40404, text)


def subject_not_soft_deleted(subject: str) -> RegistryError:
    text = f"Subject '{subject}' was not deleted first before being permanently deleted"
    return RegistryError(40405, text)


def version_soft_deleted(subject: str, version: int) -> RegistryError:
    text = (
        f"Subject '{subject}' Version {version} was soft deleted. "
        "Set permanent=true to delete permanently"
    )
    return RegistryError(40406, text)


def version_not_soft_deleted(subject: str, version: int) -> RegistryError:
    text = (
        f"Subject '{subject}' Version {version} was not deleted first "
        "before being permanently deleted"
    )
    return RegistryError(40407, text)


def config_not_found(subject: str) -> RegistryError:
    text = f"Subject '{subject}' does not have subject-level compatibility configured"
    return RegistryError(40408, text)


def mode_not_found(subject: str) -> RegistryError:
    return RegistryError(40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, messages: list[str]) -> RegistryError:
    details = ", ".join(messages)
    text = (
        "Schema being registered is incompatible with an earlier schema for subject "
        f'"{subject}", details: [{details}]'
    )
    return RegistryError(40901, text)


def invalid_schema(message: str) -> RegistryError:
    return RegistryError(42201, f"Invalid schema: {message}")


def invalid_version(text: str) -> RegistryError:
    shown = text[:40]
    return RegistryError(
        42202,
        f"The specified version '{shown}' is not a valid version id. Allowed values are between "
        f'{READ_WRITE_LIMIT} and the string "latest"',
    )


def invalid_level() -> RegistryError:
    text = (
        "Invalid compatibility level. Valid values are none, backward, forward, full, "
        "backward_transitive, forward_transitive, and full_transitive"
    )
    return RegistryError(42203, text)


def invalid_mode() -> RegistryError:
    return RegistryError(42204, "Invalid mode. Valid values are READWRITE, READONLY and IMPORT")


def not_permitted(message: str) -> RegistryError:
    return RegistryError(42205, message)


def still_referenced(subject: str, version: int) -> RegistryError:
    text = (
        "One or more references exist to the schema "
        f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}."
    )
    return RegistryError(42206, text)


def id_does_not_match(existing: int, given: int) -> RegistryError:
    return RegistryError(42207, f"Schema is registered with id {existing}, not with id {given}")


def invalid_subject(subject: str) -> RegistryError:
    shown = ascii(subject[:100])
    return RegistryError(42208, f"The specified subject {shown} is not a valid subject")


def schema_too_large(message: str) -> RegistryError:
    return RegistryError(42209, f"Schema too large: {message}")


def invalid_rule_set(message: str) -> RegistryError:
    return RegistryError(42210, f"Invalid rule set: {message}")
