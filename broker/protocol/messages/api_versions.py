"""ApiVersions: what a broker speaks."""

from __future__ import annotations

from ..fields import boolean, int16, int32, int64, message, nested, string, structs


@message("0-4", flexible="3+")
class ApiVersionsRequest:
    """The first request of most clients; v3 names the client's software."""

    client_software_name: str = string("3+", ignorable=True)
    client_software_version: str = string("3+", ignorable=True)


@message("0-4", flexible="3+")
class ApiVersionsResponse:
    """Always behind a v0 response header, so that a client which guessed wrong can read it."""

    @nested
    class ApiVersion:
        """Versions of one API, inclusive."""

        api_key: int = int16("0+")
        min_version: int = int16("0+")
        max_version: int = int16("0+")

    @nested
    class SupportedFeatureKey:
        """Levels of a feature this broker could run."""

        name: str = string("3+")
        min_version: int = int16("3+")
        max_version: int = int16("3+")

    @nested
    class FinalizedFeatureKey:
        """The level the cluster runs; meaningful only with an epoch of 0 or more."""

        name: str = string("3+")
        max_version_level: int = int16("3+")
        min_version_level: int = int16("3+")

    error_code: int = int16("0+")
    api_keys: list[ApiVersionsResponse.ApiVersion] = structs("0+")
    throttle_time_ms: int = int32("1+", ignorable=True)
    supported_features: list[ApiVersionsResponse.SupportedFeatureKey] = structs(
        "3+", tag=0, ignorable=True
    )
    finalized_features_epoch: int = int64("3+", default=-1, tag=1, ignorable=True)
    finalized_features: list[ApiVersionsResponse.FinalizedFeatureKey] = structs(
        "3+", tag=2, ignorable=True
    )
    zk_migration_ready: bool = boolean("3+", tag=3, ignorable=True)
