"""A small shop: orders in, a receipt per order and the sum of every account out.

python shop.py worker
"""

from onceward.streams import App, Record, Stream


class Order(Record):
    """``amount`` is in cents."""

    id: str
    account: str
    amount: int


class Receipt(Record):
    """``number`` counts the account's orders from 1; ``total`` is what it has spent up to it."""

    order: str
    number: int
    total: int


app = App("shop", datadir=".onceward")
orders = app.topic("orders", key_type=str, value_type=Order, partitions=4)
receipts = app.topic("receipts", key_type=str, value_type=Receipt, partitions=4)
numbers = app.Table("numbers", key_type=str, value_type=int, default=int, partitions=4)
totals = app.Table("totals", key_type=str, value_type=int, default=int, partitions=4)


@app.agent(orders)
async def bill(stream: Stream[Order]) -> None:
    """Orders are keyed by account, so one worker at a time sees all orders of an account."""
    async for order in stream:
        numbers[order.account] += 1
        totals[order.account] += order.amount
        receipt = Receipt(order.id, numbers[order.account], totals[order.account])
        await receipts.send(key=order.account, value=receipt)


if __name__ == "__main__":
    app.main()
