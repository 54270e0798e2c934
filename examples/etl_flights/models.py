"""What is in the files, in the topics and in the tables of the database."""

from __future__ import annotations

from datetime import datetime

from onceward.streams import Record

LATE_MIN = 15
"""A flight that leaves more minutes after its time is late."""


class Airline(Record):
    carrier: str
    name: str


class Airport(Record):
    """``alt`` in feet; ``tz`` in hours from UTC."""

    faa: str
    name: str
    lat: float
    lon: float
    alt: int
    tz: float


class Plane(Record):
    tailnum: str
    manufacturer: str
    model: str
    engines: int
    seats: int
    engine: str
    year: int | None = None


class Weather(Record, tag=True):
    """One hour at one of the three airports. ``temp`` in Fahrenheit, ``wind_speed`` in mph,
    ``precip`` in inches, ``visib`` in miles."""

    origin: str
    time_hour: datetime
    temp: float | None
    humid: float | None
    wind_speed: float | None
    precip: float
    visib: float


class Flight(Record, tag=True):
    """``dep_delay`` and ``arr_delay`` in minutes: None for one that never left, or never came."""

    time_hour: datetime
    carrier: str
    flight: int
    tailnum: str | None
    origin: str
    dest: str
    distance: int
    dep_delay: int | None
    arr_delay: int | None


class JoinedFlight(Record):
    """A flight with what the other four files say about it; None where they say nothing."""

    time_hour: datetime
    carrier: str
    airline: str | None
    flight: int
    tailnum: str | None
    manufacturer: str | None
    seats: int | None
    origin: str
    dest: str
    dest_name: str | None
    distance: int
    dep_delay: int | None
    arr_delay: int | None
    has_weather: bool
    temp: float | None
    wind_speed: float | None
    precip: float | None


class Leg(Record):
    """What the totals of a route need to know of one flight."""

    carrier: str
    origin: str
    dest: str
    dep_delay: int | None
    arr_delay: int | None
    in_rain: bool


class Route(Record):
    """One carrier's flights from one airport to another; delays are sums of minutes."""

    carrier: str
    origin: str
    dest: str
    flights: int = 0
    departed: int = 0
    dep_delay: int = 0
    arrived: int = 0
    arr_delay: int = 0
    late: int = 0
    in_rain: int = 0

    def add(self, leg: Leg) -> Route:
        """The totals with one more flight in them."""
        has_left, has_come = leg.dep_delay is not None, leg.arr_delay is not None
        return Route(
            self.carrier,
            self.origin,
            self.dest,
            self.flights + 1,
            self.departed + has_left,
            self.dep_delay + (leg.dep_delay or 0),
            self.arrived + has_come,
            self.arr_delay + (leg.arr_delay or 0),
            self.late + (has_left and (leg.dep_delay or 0) > LATE_MIN),
            self.in_rain + leg.in_rain,
        )
