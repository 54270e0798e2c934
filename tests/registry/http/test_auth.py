"""Who may come in."""

from __future__ import annotations

import base64

import httpx
import pytest

from onceward.registry.errors import RegistryError
from onceward.registry.http.application import RegistryApp
from onceward.registry.http.auth import BasicAuth, PasswordHash, read_users

from ..direct import memory_service

HASH = PasswordHash.of("secret", b"0123456789abcdef")


def header(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def test_a_file_of_users_is_read_back() -> None:
    users = read_users(["# who may come", "", f"ann:{HASH}"])
    assert users == {"ann": HASH}
    assert users["ann"].matches("secret") and not users["ann"].matches("Secret")


@pytest.mark.parametrize(
    "line",
    ["ann", ":x", "ann:plain", "ann:scrypt$1$8$1$AA==$AA==", "ann:scrypt$16384$8$1$?$?",
     "ann:scrypt$99999999999$8$1$AA==$AA==", "ann:scrypt$x$8$1$AA==$AA=="],
)  # fmt: skip
def test_a_line_that_is_no_user_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="line 1"):
        read_users([line])


def test_only_the_right_password_of_a_known_name_is_remembered() -> None:
    auth = BasicAuth({"ann": HASH})
    right = header("ann", "secret")
    auth.check(right)
    assert auth.is_remembered(right)
    for wrong in (header("ann", "x"), header("bob", "secret"), "Bearer x", "Basic ?", "", "Basic"):
        with pytest.raises(RegistryError) as caught:
            auth.check(wrong)
        assert caught.value.status == 401
        assert not auth.is_remembered(wrong)


async def test_a_stranger_is_told_to_log_in_everywhere() -> None:
    auth = BasicAuth({"ann": HASH})

    async def authenticate(given: str) -> None:
        auth.check(given)

    app = RegistryApp(memory_service(), authenticate=authenticate)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
        for path in ("/", "/subjects", "/nope", "/openapi.json"):
            response = await client.get(path)
            assert response.status_code == 401
            assert response.json() == {"error_code": 401, "message": "Unauthorized"}
            assert response.headers["www-authenticate"].startswith("Basic ")
            response = await client.get(path, headers={"authorization": header("ann", "secret")})
            assert response.status_code in (200, 404)
