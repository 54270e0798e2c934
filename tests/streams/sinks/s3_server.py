"""An S3 to test against: moto's server in a thread, on a port of its own."""

from __future__ import annotations

import itertools
import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from .object_store import is_hidden

INSTALL = "pip install 'onceward[test]'"
_NUMBERS = itertools.count()


class S3Server:
    """``address``: of the endpoint. Everything is in memory."""

    def __init__(self) -> None:
        reason = f"no S3 to test against: {INSTALL}"
        pytest.importorskip("s3fs", reason=reason)
        moto: Any = pytest.importorskip("moto.server", reason=reason)
        self._server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        host, port = self._server.get_host_and_port()
        self.address = f"http://{host}:{port}"

    def stop(self) -> None:
        self._server.stop()

    def options(self, **more: Any) -> dict[str, Any]:
        """``storage_options`` that lead here."""
        return {"key": "testing", "secret": "s3cr3t", "endpoint_url": self.address, **more}

    def check_credentials(self, does: bool) -> None:
        """Whether it refuses keys it does not know; otherwise it takes all."""
        request = urllib.request.Request(
            f"{self.address}/moto-api/reset-auth",
            b"0" if does else b"inf",
            {"Content-Type": "text/plain"},
        )
        urllib.request.urlopen(request, timeout=10).close()


class S3Bucket:
    """A new bucket, seen by another client than the sink's."""

    def __init__(self, server: S3Server) -> None:
        import boto3  # type: ignore[import-untyped,import-not-found,unused-ignore]

        self.server = server
        self.name = f"bucket-{next(_NUMBERS)}"
        self.client: Any = boto3.client(
            "s3",
            endpoint_url=server.address,
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
            region_name="us-east-1",
        )
        self.client.create_bucket(Bucket=self.name)

    @property
    def url(self) -> str:
        return f"s3://{self.name}/out/rows"

    def listed(self, url: str = "") -> list[str]:
        """Keys, or only those below a URL."""
        prefix = f"{url.removeprefix(f's3://{self.name}/')}/" if url else ""
        pages = self.client.get_paginator("list_objects_v2")
        found = pages.paginate(Bucket=self.name, Prefix=prefix)
        return [entry["Key"] for page in found for entry in page.get("Contents", ())]

    def read(self, key: str) -> bytes:
        return bytes(self.client.get_object(Bucket=self.name, Key=key)["Body"].read())

    def files(self, url: str = "") -> dict[str, bytes]:
        """What a reader sees."""
        return {key: self.read(key) for key in self.listed(url) if not is_hidden(key)}

    def ids(self, url: str = "") -> list[int]:
        lines = (line for data in self.files(url).values() for line in data.splitlines())
        return sorted(json.loads(line)["id"] for line in lines)


@pytest.fixture(scope="module")
def s3_server() -> Iterator[S3Server]:
    server = S3Server()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def bucket(s3_server: S3Server) -> Iterator[S3Bucket]:
    made = S3Bucket(s3_server)
    yield made
    made.client.close()
