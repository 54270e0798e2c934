"""A consumer to be killed: ``aiokafka_member.py ADDRESS GROUP TOPIC``."""

from __future__ import annotations

import asyncio
import sys

from aiokafka import AIOKafkaConsumer


async def main() -> None:
    address, group, topic = sys.argv[1:]
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=address,
        group_id=group,
        session_timeout_ms=1500,
        heartbeat_interval_ms=200,
        enable_auto_commit=False,
    )
    await consumer.start()
    async for _ in consumer:
        pass


if __name__ == "__main__":
    asyncio.run(main())
