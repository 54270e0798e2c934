"""Which connections a member is heard on, for members that asked to be expired early.

Soft state: after a restart of the broker a member is expired early only after its next JoinGroup.
"""

from __future__ import annotations

from dataclasses import dataclass, field

NO_CONNECTION = -1


@dataclass(slots=True)
class Presence:
    """What is known of one member.

    grace_ms: how long after its last connection closed it is expired; -1 = it did not ask for that.
    grace_running: its grace timer is set.
    """

    grace_ms: int = -1
    connections: set[int] = field(default_factory=set)
    grace_running: bool = False


@dataclass(slots=True)
class Connections:
    """(group, member) by connection id; only of members with a grace."""

    members: dict[int, set[tuple[str, str]]] = field(default_factory=dict)

    def attach(self, presence: Presence, group_id: str, member_id: str, connection_id: int) -> None:
        presence.connections.add(connection_id)
        self.members.setdefault(connection_id, set()).add((group_id, member_id))

    def forget(self, presence: Presence, group_id: str, member_id: str) -> None:
        """The member is gone, or does not ask for early expiry any more."""
        for connection_id in presence.connections:
            held = self.members.get(connection_id)
            if held is not None:
                held.discard((group_id, member_id))
                if not held:
                    del self.members[connection_id]
        presence.connections.clear()

    def close(self, connection_id: int) -> list[tuple[str, str]]:
        """Members heard on a connection that closed, sorted; the caller updates their presence."""
        return sorted(self.members.pop(connection_id, ()))
