"""The shop example with one line made wrong on purpose: a newcomer's first red test."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from onceward.streams.testing import AnomalyFound, NotDeterministic, ReferenceFailed, simulate

SHOP = (Path(__file__).parents[2] / "examples" / "shop" / "shop.py").read_text(encoding="utf-8")
ORDERS = [
    (account, {"id": f"{account}-{number}", "account": account, "amount": 100})
    for number in range(8)
    for account in ("ada", "bob", "cleo")
]


@pytest.fixture
def shop(tmp_path: Path) -> Callable[[str, str], str]:
    """Writes the shop with a line replaced; returns MODULE:APP."""
    numbers = itertools.count()

    def wrong(line: str, instead: str) -> str:
        assert SHOP.count(line) == 1
        path = tmp_path / f"wrong_shop_{next(numbers)}.py"
        path.write_text(SHOP.replace(line, instead), encoding="utf-8")
        return f"{path}:app"

    return wrong


def encoded() -> dict[str, list[tuple[bytes, bytes]]]:
    import msgspec

    return {"orders": [(key.encode(), msgspec.json.encode(value)) for key, value in ORDERS]}


def test_the_shop_itself_is_right(shop: Callable[[str, str], str]) -> None:
    app = shop('app = App("shop"', 'app = App("shop"')
    assert simulate(app, input=encoded(), seeds=10).seeds == 10


def test_a_file_written_by_an_agent_is_named(
    shop: Callable[[str, str], str], tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger.txt"
    line = "        numbers[order.account] += 1\n"
    app = shop(line, f'{line}        open({str(ledger)!r}, "a").write(order.id)\n')
    with pytest.raises(ReferenceFailed, match=r"writing to the file .*ledger.txt .* happens again"):
        simulate(app, input=encoded(), seeds=10)
    assert not ledger.exists()


def test_a_key_that_is_not_deterministic_is_named(shop: Callable[[str, str], str]) -> None:
    app = shop(
        "key=order.account, value=receipt", "key=str(__import__('uuid').uuid4()), value=receipt"
    )
    with pytest.raises(NotDeterministic, match=r"receipts: .* comes once in one run, not at all"):
        simulate(app, input=encoded(), seeds=10)


def test_a_count_kept_in_a_global_is_found_wrong(shop: Callable[[str, str], str]) -> None:
    app = shop(
        'numbers = app.Table("numbers", key_type=str, value_type=int, default=int, partitions=4)',
        "numbers = __import__('collections').Counter()",
    )
    with pytest.raises(AnomalyFound, match=r"WRONG|DUPLICATED|LOST"):
        simulate(app, input=encoded(), seeds=100)
