"""Chooses the instance that writes, by membership in a consumer group of protocol type ``sr``.

The election only says who should write. That nobody else can is seen to by the store, so a member
that is cut off and still believes that it leads does no harm.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from onceward.broker.client import Client, ConnectionFailed, Coordinator, KafkaError
from onceward.broker.client.errors import kafka_error
from onceward.broker.client.group import Membership, Step

from .leadership import DUPLICATE_URLS, PROTOCOL_NAME, PROTOCOL_TYPE, Assignment, Identity, choose
from .records import BadRecord

log = logging.getLogger("onceward.registry")

JOIN_GRACE_MS = 5_000
LEAVE_GROUP_MIN_VERSION = 3


class Election:
    """A member of the group. ``on_change`` is called when the leader changed. Times are ms.

    ``connection_grace_ms`` asks our own broker to drop a member early whose connections closed.
    """

    def __init__(
        self,
        client: Client,
        identity: Identity,
        *,
        group_id: str = "schema-registry",
        session_timeout_ms: int = 10_000,
        heartbeat_interval_ms: int = 1_000,
        rebalance_timeout_ms: int = 10_000,
        connection_grace_ms: int = 500,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._identity = identity
        self._machine = Membership(
            group_id,
            group_instance_id=None,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            connection_grace_ms=connection_grace_ms,
            protocol_type=PROTOCOL_TYPE,
        )
        self._coordinator = Coordinator.group(group_id)
        self._lane = client.new_lane("registry")
        self._heartbeat_interval = heartbeat_interval_ms / 1000
        self._on_change = on_change
        self._changed = asyncio.Event()
        self._rejoin = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._leader: Identity | None = None
        self._is_self = False

    @property
    def leader(self) -> Identity | None:
        return self._leader

    @property
    def is_self(self) -> bool:
        return self._is_self

    async def start(self) -> None:
        """Join; the outcome shows in ``leader``."""
        self._task = asyncio.create_task(self._run(), name="registry election")

    async def stop(self) -> None:
        """Leave the group, so that another instance takes over at once. Idempotent."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        self._set(None, is_self=False)
        request = self._machine.leave_request()
        if request is not None:
            try:
                await self._client.request(
                    self._coordinator, request, min_version=LEAVE_GROUP_MIN_VERSION
                )
            except KafkaError as error:
                log.info("leaving the group of registries failed: %s", error)
        self._client.close_lane(self._lane)

    async def wait_failed(self) -> None:
        """Returns never, or raises what ended the membership: a fault of ours."""
        assert self._task is not None
        await asyncio.shield(self._task)

    async def wait_for_change(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return

    def deposed(self) -> None:
        """Somebody else writes: find out who."""
        if self._is_self:
            self._set(None, is_self=False)
            self._machine.request_rejoin("another instance writes")
            self._rejoin.set()

    def _set(self, leader: Identity | None, *, is_self: bool) -> None:
        if (leader, is_self) == (self._leader, self._is_self):
            return
        self._leader, self._is_self = leader, is_self
        self._changed.set()
        self._changed = asyncio.Event()
        self._on_change()

    # membership

    async def _run(self) -> None:
        for failures in itertools.count(1):
            try:
                await self._join()
                await self._stay()
            except KafkaError as error:
                log.warning("the election of the writing registry failed: %s", error)
                self._set(None, is_self=False)
                self._machine.on_join_failed()
                self._client.forget_coordinator(self._coordinator, error)
                await asyncio.sleep(self._client.backoff.delay(min(failures, 5)))

    async def _join(self) -> None:
        """Rounds until there is an assignment. Raises ``KafkaError`` for what no retry mends."""
        self._rejoin.clear()
        step = Step.JOIN
        for failures in itertools.count(1):
            if step is Step.RETRY:
                await asyncio.sleep(self._client.backoff.delay(failures))
            if step is Step.LOST:
                self._machine.on_lost_handled()
                self._set(None, is_self=False)
            try:
                step = await self._round()
            except ConnectionFailed as error:
                self._machine.on_join_failed()
                self._client.forget_coordinator(self._coordinator, error)
                step = Step.RETRY
            if step is Step.DONE:
                self._take_assignment()
                return

    async def _round(self) -> Step:
        machine = self._machine
        own = replace(self._identity, leading=self._is_self)
        timeout_ms = machine.rebalance_timeout_ms + JOIN_GRACE_MS
        joined = await self._send(machine.join_request([(PROTOCOL_NAME, own.encode())]), timeout_ms)
        step = machine.on_join(joined)
        self._check_coordinator(joined.error_code)
        if step not in (Step.SYNC, Step.ASSIGN):
            return step
        assignments = {}
        if step is Step.ASSIGN:
            encoded = choose(_identities(joined.members)).encode()
            assignments = {member.member_id: encoded for member in joined.members}
        synced = await self._send(machine.sync_request(assignments), timeout_ms)
        step = machine.on_sync(synced)
        self._check_coordinator(synced.error_code)
        return step

    async def _send(self, request: Any, timeout_ms: int) -> Any:
        return await self._client.request(
            self._coordinator, request, lane=self._lane, timeout_ms=timeout_ms
        )

    def _check_coordinator(self, code: int) -> None:
        """Another node may coordinate the group now."""
        if code:
            self._client.forget_coordinator(self._coordinator, kafka_error(code))

    def _take_assignment(self) -> None:
        try:
            assignment = Assignment.decode(self._machine.assignment)
        except BadRecord as error:
            log.warning("the assignment of the writing registry cannot be read: %s", error)
            self._set(None, is_self=False)
            return
        if assignment.error == DUPLICATE_URLS:
            log.error("two registries say that they are at %s: none may write", self._identity.url)
        own = bool(assignment.member_id) and assignment.member_id == self._machine.member_id
        self._set(self._identity if own else assignment.identity, is_self=own)

    async def _stay(self) -> None:
        """Heartbeats until another round is due. A leader goes on writing meanwhile."""
        loop = asyncio.get_running_loop()
        lives_until = loop.time() + self._machine.session_timeout_ms / 1000
        is_cut_off = False
        while not self._machine.rejoin_needed:
            try:
                async with asyncio.timeout(self._heartbeat_interval):
                    await self._rejoin.wait()
            except TimeoutError:
                pass
            request = self._machine.heartbeat_request()
            if request is None or self._machine.rejoin_needed:
                return
            try:
                response = await self._send(request, self._machine.session_timeout_ms)
            except ConnectionFailed as error:
                self._client.forget_coordinator(self._coordinator, error)
                if loop.time() > lives_until:
                    is_cut_off = True
                    self._set(None, is_self=False)
                continue
            lives_until = loop.time() + self._machine.session_timeout_ms / 1000
            step = self._machine.on_heartbeat(request, response.error_code)
            self._check_coordinator(response.error_code)
            if step is Step.LOST:
                self._machine.on_lost_handled()
                self._set(None, is_self=False)
            elif is_cut_off and not response.error_code:
                # A coordinator that was away itself has not replaced anybody meanwhile.
                is_cut_off = False
                self._take_assignment()


def _identities(members: Any) -> dict[str, Identity]:
    """By member id. A member that cannot be understood cannot lead."""
    found = {}
    for member in members:
        try:
            found[member.member_id] = Identity.decode(bytes(member.metadata))
        except BadRecord as error:
            log.warning("member %s of the group of registries: %s", member.member_id, error)
    return found
