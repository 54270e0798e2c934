"""``onceward demo``: the three delivery guarantees under the same kills, judged from outside."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from .demo_judge import Verdict
from .demo_run import Plan, run_all

SEMANTICS = ("at_most_once", "at_least_once", "exactly_once")


@click.command()
@click.option("--records", type=click.IntRange(10), default=10_000, show_default=True)
@click.option("--kills", type=click.IntRange(0), default=3, show_default=True, help="Of workers.")
@click.option("--kill-broker", is_flag=True, help="Also kill -9 the broker, once per guarantee.")
@click.option("--seed", type=int, help="Repeats the payments and the moments of the kills.")
@click.option(
    "--semantics", type=click.Choice(["all", *SEMANTICS]), default="all", show_default=True
)
@click.option("--json", "as_json", is_flag=True, help="Print the verdicts as JSON.")
def demo(
    records: int, kills: int, kill_broker: bool, seed: int | None, semantics: str, as_json: bool
) -> int:
    """Kill workers while a pipeline runs, and count what was lost and what was duplicated.

    Exit code 0 only when exactly_once lost nothing and duplicated nothing.

    \b
    Example:  onceward demo
              onceward demo --kills 6 --kill-broker --seed 7
    """
    seed = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    chosen = SEMANTICS if semantics == "all" else (semantics,)
    verdicts = [Verdict(name) for name in chosen]
    plan = Plan.draw(seed, records, kills, 1 if kill_broker else 0)
    work = Path(tempfile.mkdtemp(prefix="onceward-demo-"))
    with _display(verdicts, quiet=as_json) as refresh:
        asyncio.run(run_all(plan, verdicts, work, refresh))
    exact = all(verdict.exact for verdict in verdicts if verdict.semantics == "exactly_once")
    if as_json:
        report = [{**dataclasses.asdict(verdict), "exact": verdict.exact} for verdict in verdicts]
        click.echo(json.dumps({"seed": seed, "runs": report}, indent=2))
    else:
        click.echo(_conclusion(verdicts, seed, work))
    if exact:
        shutil.rmtree(work)
    else:
        click.echo(f"logs and data are kept in {work}", err=True)
    return 0 if exact else 1


def _conclusion(verdicts: list[Verdict], seed: int, work: Path) -> str:
    exact = [verdict for verdict in verdicts if verdict.semantics == "exactly_once"]
    if not exact:
        return f"seed {seed}"
    if exact[0].exact:
        return f"exactly_once: every payment took effect once (seed {seed})."
    return f"exactly_once was violated; repeat it with: onceward demo --seed {seed}"


@contextmanager
def _display(verdicts: list[Verdict], *, quiet: bool) -> Iterator[Callable[[], None]]:
    """A live table on a terminal, one table at the end elsewhere, nothing when ``quiet``."""
    console = Console(file=sys.stderr) if quiet else Console()
    if quiet or not console.is_terminal:
        yield lambda: None
        if not quiet:
            console.print(_table(verdicts))
        return
    with Live(console=console, get_renderable=lambda: _table(verdicts), refresh_per_second=8):
        yield lambda: None


def _table(verdicts: list[Verdict]) -> Table:
    table = Table(
        title="payments in, receipts out",
        caption="kills: workers + broker",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("guarantee", no_wrap=True)
    for name in ("in", "out", "lost", "duplicated", "wrong sums", "kills", "seconds"):
        table.add_column(name, justify="right")
    for verdict in verdicts:
        kills = str(verdict.worker_kills)
        if verdict.broker_kills:
            kills += f" + {verdict.broker_kills}"
        table.add_row(
            verdict.semantics,
            f"{verdict.sent:,}",
            f"{verdict.received:,}",
            f"{verdict.lost:,}" if verdict.seconds else "...",
            f"{verdict.duplicated:,}",
            f"{verdict.wrong_balances:,}" if verdict.seconds else "...",
            kills,
            f"{verdict.seconds:.1f}" if verdict.seconds else "...",
        )
    return table
