"""Access control lists (KIP-140). Types and operations are the codes of Kafka's enums."""

from __future__ import annotations

from ..fields import int8, int16, int32, message, nested, string, structs

_LITERAL = 3


@message("1-3", flexible="2+")
class DescribeAclsRequest:
    """A filter; None matches every name, principal or host."""

    resource_type_filter: int = int8("0+")
    resource_name_filter: str | None = string("0+", nullable="0+")
    pattern_type_filter: int = int8("1+", default=_LITERAL)
    principal_filter: str | None = string("0+", nullable="0+")
    host_filter: str | None = string("0+", nullable="0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


@message("1-3", flexible="2+")
class DescribeAclsResponse:
    """The lists by resource."""

    @nested
    class DescribeAclsResource:
        """One resource pattern."""

        resource_type: int = int8("0+")
        resource_name: str = string("0+")
        pattern_type: int = int8("1+", default=_LITERAL)
        acls: list[DescribeAclsResponse.AclDescription] = structs("0+")

    @nested
    class AclDescription:
        """Who may, or may not, do what from where."""

        principal: str = string("0+")
        host: str = string("0+")
        operation: int = int8("0+")
        permission_type: int = int8("0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    resources: list[DescribeAclsResponse.DescribeAclsResource] = structs("0+")


@message("1-3", flexible="2+")
class CreateAclsRequest:
    """Entries to add."""

    @nested
    class AclCreation:
        """One entry of one resource pattern."""

        resource_type: int = int8("0+")
        resource_name: str = string("0+")
        resource_pattern_type: int = int8("1+", default=_LITERAL)
        principal: str = string("0+")
        host: str = string("0+")
        operation: int = int8("0+")
        permission_type: int = int8("0+")

    creations: list[CreateAclsRequest.AclCreation] = structs("0+")


@message("1-3", flexible="2+")
class CreateAclsResponse:
    """One result for each entry, in their order."""

    @nested
    class AclCreationResult:
        """The result for one entry."""

        error_code: int = int16("0+")
        error_message: str | None = string("0+", default=None, nullable="0+")

    throttle_time_ms: int = int32("0+")
    results: list[CreateAclsResponse.AclCreationResult] = structs("0+")


@message("1-3", flexible="2+")
class DeleteAclsRequest:
    """Deletes what any of the filters matches."""

    @nested
    class DeleteAclsFilter:
        """As in ``DescribeAclsRequest``."""

        resource_type_filter: int = int8("0+")
        resource_name_filter: str | None = string("0+", nullable="0+")
        pattern_type_filter: int = int8("1+", default=_LITERAL)
        principal_filter: str | None = string("0+", nullable="0+")
        host_filter: str | None = string("0+", nullable="0+")
        operation: int = int8("0+")
        permission_type: int = int8("0+")

    filters: list[DeleteAclsRequest.DeleteAclsFilter] = structs("0+")


@message("1-3", flexible="2+")
class DeleteAclsResponse:
    """One result for each filter, in their order."""

    @nested
    class DeleteAclsFilterResult:
        """What one filter matched."""

        error_code: int = int16("0+")
        error_message: str | None = string("0+", default=None, nullable="0+")
        matching_acls: list[DeleteAclsResponse.DeleteAclsMatchingAcl] = structs("0+")

    @nested
    class DeleteAclsMatchingAcl:
        """A deleted entry."""

        error_code: int = int16("0+")
        error_message: str | None = string("0+", default=None, nullable="0+")
        resource_type: int = int8("0+")
        resource_name: str = string("0+")
        pattern_type: int = int8("1+", default=_LITERAL)
        principal: str = string("0+")
        host: str = string("0+")
        operation: int = int8("0+")
        permission_type: int = int8("0+")

    throttle_time_ms: int = int32("0+")
    filter_results: list[DeleteAclsResponse.DeleteAclsFilterResult] = structs("0+")
