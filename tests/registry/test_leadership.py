"""Who writes: the frames of the group protocol, and the choice."""

from __future__ import annotations

import pytest

from onceward.registry.leadership import DUPLICATE_URLS, Assignment, Identity, choose
from onceward.registry.records import BadRecord

A = Identity("a", 8081)
B = Identity("b", 8081)


def test_the_frames_are_confluents() -> None:
    assert A.encode() == (
        b'{"version":1,"host":"a","port":8081,"master_eligibility":true,'
        b'"scheme":"http","leader":false}'
    )
    assert Assignment(0, "m", A).encode() == (
        b'{"version":1,"error":0,"master":"m","master_identity":' + A.encode() + b"}"
    )
    assert Identity.decode(A.encode()) == A
    for assignment in (Assignment(0, "m", A), Assignment(1, "", None)):
        assert Assignment.decode(assignment.encode()) == assignment


@pytest.mark.parametrize("data", [b"", b"[]", b'{"host":1,"port":2}', b'{"host":"a"}'])
def test_a_frame_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(BadRecord):
        Identity.decode(data)


def test_the_smallest_url_leads() -> None:
    assert choose({"1": B, "2": A}) == Assignment(0, "2", A)


def test_who_leads_already_goes_on() -> None:
    leading = Identity("z", 8081, leading=True)
    assert choose({"1": B, "2": A, "3": leading}).member_id == "3"


def test_who_may_not_lead_does_not() -> None:
    follower = Identity("0", 8081, eligible=False)
    assert choose({"1": follower, "2": B}).member_id == "2"
    assert choose({"1": follower}) == Assignment(0, "", None)


def test_two_at_one_address_are_an_error() -> None:
    assert choose({"1": A, "2": A}).error == DUPLICATE_URLS


def test_an_ipv6_host_is_in_brackets() -> None:
    assert Identity("::1", 8081, "https").url == "https://[::1]:8081"
