"""Requests in one line: what was answered as (status, body)."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import httpx

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


class Rest:
    """Sends JSON and asserts what holds for every answer."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def __call__(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, Any]:
        request = self.client.build_request(
            method,
            path,
            json=body,
            headers={"content-type": CONTENT_TYPE, **headers} if body is not None else headers,
        )
        response = await self.client.send(request)
        assert response.headers["content-type"] == CONTENT_TYPE
        value = response.json()
        if response.status_code >= 400:
            assert value.keys() == {"error_code", "message"}
            assert isinstance(value["message"], str)
            assert str(value["error_code"]).startswith(str(response.status_code))
        return response.status_code, value

    async def ok(self, method: str, path: str, body: Any = None) -> Any:
        status, value = await self(method, path, body)
        assert status == 200, value
        return value

    async def code(self, method: str, path: str, body: Any = None) -> int:
        """The error code of a request that fails."""
        status, value = await self(method, path, body)
        assert status >= 400, value
        code: int = value["error_code"]
        return code

    async def register(self, subject: str, schema: str, **members: Any) -> Any:
        path = f"/subjects/{quote(subject, safe='')}/versions"
        return await self.ok("POST", path, {"schema": schema, **members})
