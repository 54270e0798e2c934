"""An onceward app whose value types are Faust's records, read as Faust wrote them."""

import faust

from onceward.streams import App

app = App("faust-totals", store="memory://")


class Order(faust.Record, serializer="json"):
    number: int
    account: str


class Total(faust.Record):
    account: str
    orders: list[int]
    last: Order


copies = app.topic("copies", key_type=str, value_type=Order)
totals = app.topic("account-totals", key_type=str, value_type=Total, partitions=2)
seen = app.Table("seen", key_type=str, value_type=Total)


@app.agent(copies)
async def total(stream):
    async for order in stream.filter(lambda order: isinstance(order, Order)):
        before = seen.get(order.account)
        numbers = [*before.orders, order.number] if before else [order.number]
        state = Total(account=order.account, orders=numbers, last=order)
        seen[order.account] = state
        await totals.send(key=order.account, value=state)


if __name__ == "__main__":
    app.main()
