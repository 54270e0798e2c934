"""Writes that come to an instance that does not lead."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from onceward.registry.errors import RegistryError
from onceward.registry.http.application import RegistryApp
from onceward.registry.http.forwarding import ForwardedAnswer, ForwardedRequest
from onceward.registry.leadership import Identity
from onceward.registry.service import RegistryService

from ..direct import memory_service

LEADER = Identity("leader.test", 8081)
DONE = ForwardedAnswer(200, "application/json", b'{"id":7}')
NOT_THE_LEADER = ForwardedAnswer(500, "application/json", b'{"error_code":50004,"message":"-"}')
BODY = {"schema": "no schema at all"}


class Following:
    """Told who leads; ``waits`` counts how often somebody waited for news."""

    def __init__(self, leader: Identity | None) -> None:
        self.leader = leader
        self.is_self = False
        self.waits = 0

    async def wait_for_change(self, timeout_s: float) -> None:
        self.waits += 1

    def deposed(self) -> None:
        return


def following(leader: Identity | None) -> tuple[RegistryService, Following]:
    service, leadership = memory_service(), Following(leader)
    service.leadership = leadership
    return service, leadership


class Forwarded:
    """Answers what it is given, in turn, and keeps what was sent."""

    def __init__(self, *answers: ForwardedAnswer | RegistryError | None) -> None:
        self.answers = list(answers)
        self.sent: list[tuple[str, ForwardedRequest]] = []

    async def __call__(self, leader: str, request: ForwardedRequest) -> ForwardedAnswer | None:
        self.sent.append((leader, request))
        answer = self.answers.pop(0)
        if isinstance(answer, RegistryError):
            raise answer
        return answer


async def post(app: Callable[..., Any], **headers: str) -> httpx.Response:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
        path = "/subjects/a%2Fb/versions?normalize=true"
        return await client.post(path, json=BODY, headers={"authorization": "Basic x", **headers})


async def test_a_write_is_sent_on_as_it_came_without_looking_at_it() -> None:
    service, _ = following(LEADER)
    forward = Forwarded(DONE)
    response = await post(RegistryApp(service, forward=forward))
    assert (response.status_code, response.json()) == (200, {"id": 7})
    [(leader, request)] = forward.sent
    assert leader == "http://leader.test:8081"
    assert (request.method, request.target) == ("POST", "/subjects/a%2Fb/versions?normalize=true")
    assert json.loads(request.body) == BODY
    assert request.headers["authorization"] == "Basic x"


async def test_a_leader_that_is_gone_or_does_not_lead_any_more_is_asked_for_again() -> None:
    service, leadership = following(LEADER)
    forward = Forwarded(None, NOT_THE_LEADER, DONE)
    response = await post(RegistryApp(service, forward=forward))
    assert (response.status_code, len(forward.sent), leadership.waits) == (200, 3, 2)


async def test_a_write_that_may_have_been_made_is_not_repeated() -> None:
    service, _ = following(LEADER)
    forward = Forwarded(RegistryError(50003, "no answer"))
    response = await post(RegistryApp(service, forward=forward))
    assert (response.status_code, response.json()["error_code"]) == (500, 50003)


@pytest.mark.parametrize("headers", [{}, {"x-forward": "true"}])
async def test_without_a_leader_a_write_is_refused(headers: dict[str, str]) -> None:
    service, _ = following(None if not headers else LEADER)
    app = RegistryApp(service, forward=Forwarded(), leader_wait_s=0.0)
    response = await post(app, **headers)
    assert (response.status_code, response.json()["error_code"]) == (500, 50004)
