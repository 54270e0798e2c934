"""Every order is copied; a killed worker is missed after six seconds, not sixty."""

import faust

app = faust.App(
    "faust-copy",
    broker_session_timeout=6,
    broker_heartbeat_interval=1,
    broker_commit_interval=0.5,
)


class Order(faust.Record, serializer="json"):
    number: int
    account: str


orders = app.topic("orders", key_type=str, value_type=Order)
copies = app.topic("copies", key_type=str, value_type=Order)


@app.agent(orders)
async def copy(stream):
    async for account, order in stream.items():
        await copies.send(key=account, value=order)


if __name__ == "__main__":
    app.main()
