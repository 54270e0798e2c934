"""Delay statistics per carrier and per airport over a year of real flights.

Two agents and a table. The first agent turns each flight into two measurements, one for its carrier
and one for its airport of departure, keyed so that all of one subject meet in one partition.
The second folds them into the table ``statistics`` and sends each new state to
``delay-statistics``: one output record per measurement, so a lost or repeated one would show.
"""

from __future__ import annotations

from onceward.streams import App, Record, Stream

PARTITIONS = 4


class Flight(Record):
    """One line of flights.csv. ``dep_delay`` is in minutes, None for a flight that never left."""

    carrier: str
    origin: str
    dest: str
    dep_delay: int | None


class Delay(Record):
    """One flight as its carrier or airport sees it."""

    minutes: int | None


class Statistics(Record):
    """What is known about one carrier or airport after ``flights`` of its flights."""

    flights: int = 0
    cancelled: int = 0
    late: int = 0
    delay_sum: int = 0
    delay_max: int = 0

    def add(self, delay: int | None) -> Statistics:
        """The statistics with one more flight in them."""
        if delay is None:
            return Statistics(
                self.flights + 1, self.cancelled + 1, self.late, self.delay_sum, self.delay_max
            )
        return Statistics(
            self.flights + 1,
            self.cancelled,
            self.late + (delay > 15),
            self.delay_sum + delay,
            max(self.delay_max, delay),
        )


app = App("flights")
flights = app.topic("flights", value_type=Flight, partitions=PARTITIONS)
delays = app.topic("delays", key_type=str, value_type=Delay, partitions=PARTITIONS)
results = app.topic("delay-statistics", key_type=str, value_type=Statistics, partitions=PARTITIONS)
statistics = app.Table(
    "statistics", key_type=str, value_type=Statistics, default=Statistics, partitions=PARTITIONS
)


@app.agent(flights)
async def measure(stream: Stream[Flight]) -> None:
    async for flight in stream:
        delay = Delay(flight.dep_delay)
        await delays.send(key=f"carrier {flight.carrier}", value=delay)
        await delays.send(key=f"airport {flight.origin}", value=delay)


@app.agent(delays)
async def fold(stream: Stream[Delay]) -> None:
    async for subject, delay in stream.items():
        state = statistics[subject] = statistics[subject].add(delay.minutes)
        await results.send(key=subject, value=state)


if __name__ == "__main__":
    app.main()
