"""Fault plans: drawn from a seed alone, within bounds, and the same after a trip through JSON."""

from __future__ import annotations

import json
from collections import Counter
from random import Random

import pytest

from onceward.streams.testing.faults import (
    KINDS,
    Aim,
    Fault,
    Swarm,
    draw_plan,
    draw_swarm,
)

HOSTS = ("broker", "worker-0", "worker-1", "client")
ALL = Swarm(KINDS, 20, 2.0, 0.3)


def plans(count: int, swarm: Swarm | None = None) -> list[list[Fault]]:
    return [
        draw_plan(Random(seed), hosts=HOSTS, duration_s=10.0, swarm=swarm) for seed in range(count)
    ]


def test_the_same_seed_draws_the_same_plan() -> None:
    assert plans(50) == plans(50)
    assert len({json.dumps([fault.to_json() for fault in plan]) for plan in plans(50)}) > 40


def test_a_plan_survives_json() -> None:
    for plan in plans(100):
        text = json.dumps([fault.to_json() for fault in plan])
        assert [Fault.from_json(data) for data in json.loads(text)] == plan


def test_an_unknown_kind_of_fault_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown kind of fault 'flood'"):
        Fault.from_json({"at": 1.0, "kind": "flood", "target": "broker", "args": []})


def test_faults_come_in_time_order_within_the_duration_on_known_hosts() -> None:
    for plan in plans(200, ALL):
        assert [fault.at for fault in plan] == sorted(fault.at for fault in plan)
        assert len(plan) == 20
        for fault in plan:
            assert 0.0 <= fault.at <= 10.0
            assert fault.target in HOSTS
            assert fault.kind in KINDS


def test_every_kind_is_drawn_and_every_aim_can_be_named() -> None:
    drawn = [fault for plan in plans(300, ALL) for fault in plan]
    assert {fault.kind for fault in drawn} == set(KINDS)
    aims = [fault.aim for fault in drawn if fault.kind == "aimed"]
    assert {aim.action for aim in aims} == {"kill", "power_off", "pause", "reset"}
    assert {aim.match for aim in aims} >= {"END_TXN", "PRODUCE", "TXN_OFFSET_COMMIT", "FETCH", ""}
    assert all(0.0 <= aim.delay_s <= 0.004 and aim.nth >= 1 for aim in aims)
    assert any(aim.step_kind == "fsync" and aim.delay_s == 0.0 for aim in aims)


def test_a_client_is_cut_off_but_never_killed() -> None:
    kinds = {fault.kind for plan in plans(300, ALL) for fault in plan if fault.target == "client"}
    assert kinds == {"partition", "isolate", "slow", "reset", "half_open", "clock_jump"}


def test_disk_faults_hit_the_broker_and_deaths_hit_everybody_but_the_client() -> None:
    drawn = [fault for plan in plans(300, ALL) for fault in plan]
    for kind in ("disk_full", "fsync_fail", "slow_fsync"):
        assert {fault.target for fault in drawn if fault.kind == kind} == {"broker"}
    for kind in ("kill", "power_off", "pause", "aimed"):
        assert {fault.target for fault in drawn if fault.kind == kind} == set(HOSTS[:3])


def test_a_partition_is_between_two_hosts_one_of_them_the_broker() -> None:
    for plan in plans(200, ALL):
        for fault in plan:
            if fault.kind == "partition":
                other, one_way, seconds = fault.args
                assert "broker" in (fault.target, other)
                assert fault.target != other
                assert isinstance(one_way, bool)
                assert 0.0 <= seconds <= ALL.outage_s


def test_a_plan_uses_only_the_kinds_of_its_swarm() -> None:
    swarm = Swarm(("kill", "pause"), 5, 1.0, 0.0)
    assert {fault.kind for plan in plans(50, swarm) for fault in plan} == {"kill", "pause"}
    assert draw_plan(Random(1), hosts=HOSTS, duration_s=1.0, swarm=Swarm((), 5, 1.0, 0.0)) == []


def test_swarms_differ_in_kinds_number_and_length() -> None:
    swarms = [draw_swarm(Random(seed)) for seed in range(500)]
    assert 20 <= sum(not swarm.kinds for swarm in swarms) <= 90
    assert Counter(kind for swarm in swarms for kind in swarm.kinds).keys() == set(KINDS)
    assert {swarm.outage_s for swarm in swarms} == {0.0, 0.05, 0.5, 2.0, 8.0}
    assert all(len(set(swarm.kinds)) == len(swarm.kinds) for swarm in swarms)


def test_a_broker_alone_with_its_client_is_enough_and_one_host_is_not() -> None:
    rng = Random(7)
    plan = draw_plan(rng, hosts=("broker", "client"), duration_s=5.0, swarm=ALL)
    assert {fault.target for fault in plan} <= {"broker", "client"}
    with pytest.raises(ValueError, match="at least two hosts"):
        draw_plan(rng, hosts=("broker",), duration_s=5.0)


def test_an_aim_is_named_and_kept_as_plain_arguments() -> None:
    aim = Aim("send", 2, "kill", 0.001, 0.5, "END_TXN")
    fault = Fault(1.0, "aimed", "worker-0", tuple(aim))
    assert fault.aim == aim
    assert Fault.from_json(json.loads(json.dumps(fault.to_json()))).aim.match == "END_TXN"
