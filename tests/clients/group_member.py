"""A consumer to be killed: ``group_member.py ADDRESS GROUP TOPIC STRATEGY``."""

from __future__ import annotations

import sys

from confluent_kafka import Consumer


def main() -> None:
    address, group, topic, strategy = sys.argv[1:]
    member = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "session.timeout.ms": 1500,
            "heartbeat.interval.ms": 200,
            "enable.auto.commit": False,
            "partition.assignment.strategy": strategy,
        }
    )
    member.subscribe([topic])
    while True:
        member.poll(0.1)


if __name__ == "__main__":
    main()
