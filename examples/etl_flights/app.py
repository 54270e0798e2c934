"""Files into a database: flights joined with airlines, airports, planes and weather, and totals.

    onceward worker examples/etl_flights/app.py:app        rows go into flights.db

Every row of every file is one record, and every record's rows are in the database once, whatever
crashes: the tables ``airlines``, ``airports``, ``planes`` and ``weather`` as they are, ``flights``
joined with all of them, and ``routes`` with totals per carrier, origin and destination.

**What makes the joins right.** A join with something that arrives in a topic of its own would
depend on which of two topics a worker happens to read first, and differ from run to run.

- *Weather* is a stream like the flights, one row per airport and hour. Both come in one topic,
  keyed by airport and hour, from one source per airport that gives all of its weather first. A
  source's rows are in its order in every partition, so the table ``weather`` has an hour before
  the first flight that asks for it, and the same partition's worker has both.
- *Airlines, airports and planes* are small files that do not change during a run. Each worker reads
  them when it starts, so the joined row depends on nothing but the flight: a record that is run
  again after a crash gives the same row again.

Totals are integers, and sums do not depend on the order in which legs arrive from four partitions.

``flights`` has no key, and is appended to: a row written twice would be there twice. The database
is named by ``ETL_FLIGHTS_DATABASE`` (``postgresql://...``, libpq's ``key=value`` form, or a file
for SQLite), and ``ETL_FLIGHTS_LIMIT`` takes only the first flights.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from itertools import islice
from typing import Any

import msgspec
from models import Airline, Airport, Flight, JoinedFlight, Leg, Plane, Route, Weather
from source_files import MISSING, data_file, read_flights, read_rows

from onceward.streams import App, Record, Stream
from onceward.streams.sinks import PostgresSink, Sink, SqliteSink
from onceward.streams.sources import CsvFiles, Rows

DATABASE = os.environ.get("ETL_FLIGHTS_DATABASE", "flights.db")
LIMIT = int(os.environ.get("ETL_FLIGHTS_LIMIT", "0")) or None
PARTITIONS = 4
BLOCK = 5_000

app = App("etl-flights")
departures = app.topic(
    "departures", key_type=str, value_type=Weather | Flight, partitions=PARTITIONS
)
legs = app.topic("legs", key_type=str, value_type=Leg, partitions=PARTITIONS)
weather = app.Table("weather", key_type=str, value_type=Weather, partitions=PARTITIONS)
routes = app.Table("routes", key_type=str, value_type=Route, partitions=PARTITIONS)


def rows_of(table: str, value_type: type[Record], *key: str) -> Sink:
    """A table of the database: with a key rows replace each other, without one they add up."""
    if "=" in DATABASE or "://" in DATABASE:
        return PostgresSink(DATABASE, table=table, key=key, value_type=value_type, create=True)
    return SqliteSink(DATABASE, table=table, key=key, value_type=value_type, create=True)


weather_rows = rows_of("weather", Weather, "origin", "time_hour")
flight_rows = rows_of("flights", JoinedFlight)
route_rows = rows_of("routes", Route, "carrier", "origin", "dest")


def copy_file(name: str, value_type: type[Record], key: str) -> None:
    """``{name}.csv`` into the table ``{name}``, row by row."""
    topic = app.topic(name, key_type=str, value_type=value_type, partitions=1)
    file = CsvFiles(data_file(f"{name}.csv"), missing=("", MISSING), watch=None)
    app.source(topic, file, key=key)

    @app.agent(topic, name=f"copy_{name}", sink=[rows_of(name, value_type, key)])
    async def copy(stream: Stream[Any]) -> AsyncIterator[Any]:
        async for row in stream:
            yield row


copy_file("airlines", Airline, "carrier")
copy_file("airports", Airport, "faa")
copy_file("planes", Plane, "tailnum")

AIRLINES: Mapping[str, Airline] = {
    row.carrier: row
    for row in msgspec.convert(list(read_rows("airlines")), list[Airline], strict=False)
}
AIRPORTS: Mapping[str, Airport] = {
    row.faa: row
    for row in msgspec.convert(list(read_rows("airports")), list[Airport], strict=False)
}
PLANES: Mapping[str, Plane] = {
    row.tailnum: row
    for row in msgspec.convert(list(read_rows("planes")), list[Plane], strict=False)
}


@app.source(departures, splits=("EWR", "JFK", "LGA"))
async def read_departures(position: list[Any] | None, airport: str) -> AsyncIterator[Rows]:
    """Rows about one airport, first of the weather and then of the flights.

    The position is a file and how many of its rows were read; ``end`` behind the last one, as the
    source is asked again whenever the split moves to another worker.
    """
    file, done = position or ["weather", 0]
    while file != "end":
        is_weather = file == "weather"
        kind: Any = list[Weather] if is_weather else list[Flight]
        rows = read_rows("weather", done) if is_weather else read_flights(LIMIT, done)
        while block := list(islice(rows, BLOCK)):
            done += len(block)
            ours = [row for row in block if row["origin"] == airport]
            values = msgspec.convert(ours, kind, strict=False)
            yield Rows([file, done], values, keys=[hour_of(row) for row in values])
            await asyncio.sleep(0)
        file, done = "flights" if is_weather else "end", 0
        yield Rows([file, done], ())


def hour_of(row: Weather | Flight) -> str:
    """``JFK 2013-01-01T10:00:00+00:00``: what weather and flights are joined by."""
    return f"{row.origin} {row.time_hour.isoformat()}"


@app.agent(departures)
async def join(stream: Stream[Weather | Flight]) -> None:
    """Weather into its table; flights joined with everything, and on to their route."""
    async for hour, row in stream.items():
        if isinstance(row, Weather):
            weather[hour] = row
            await weather_rows.write(row)
            continue
        joined = join_flight(row, weather.get(hour))
        await flight_rows.write(joined)
        in_rain = joined.precip is not None and joined.precip > 0
        leg = Leg(row.carrier, row.origin, row.dest, row.dep_delay, row.arr_delay, in_rain)
        await legs.send(key=f"{row.carrier} {row.origin} {row.dest}", value=leg)


def join_flight(flight: Flight, hour: Weather | None) -> JoinedFlight:
    airline = AIRLINES.get(flight.carrier)
    airport = AIRPORTS.get(flight.dest)
    plane = None if flight.tailnum is None else PLANES.get(flight.tailnum)
    return JoinedFlight(
        time_hour=flight.time_hour,
        carrier=flight.carrier,
        airline=None if airline is None else airline.name,
        flight=flight.flight,
        tailnum=flight.tailnum,
        manufacturer=None if plane is None else plane.manufacturer,
        seats=None if plane is None else plane.seats,
        origin=flight.origin,
        dest=flight.dest,
        dest_name=None if airport is None else airport.name,
        distance=flight.distance,
        dep_delay=flight.dep_delay,
        arr_delay=flight.arr_delay,
        has_weather=hour is not None,
        temp=None if hour is None else hour.temp,
        wind_speed=None if hour is None else hour.wind_speed,
        precip=None if hour is None else hour.precip,
    )


@app.agent(legs)
async def total(stream: Stream[Leg]) -> None:
    """One more flight of a route; its row in the database is replaced."""
    async for name, leg in stream.items():
        route = routes.get(name) or Route(leg.carrier, leg.origin, leg.dest)
        routes[name] = route = route.add(leg)
        await route_rows.write(route)


if __name__ == "__main__":
    app.main()
