"""Judging the demo from outside: payments that went in against receipts that came out. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Verdict:
    """What a reader of the output sees of one run.

    ``lost`` payments have no receipt, ``duplicated`` receipts repeat an earlier one, and
    ``wrong_balances`` accounts end with another balance than their payments add up to.
    """

    semantics: str
    sent: int = 0
    received: int = 0
    lost: int = 0
    duplicated: int = 0
    wrong_balances: int = 0
    worker_kills: int = 0
    broker_kills: int = 0
    seconds: float = 0.0

    @property
    def exact(self) -> bool:
        return not (self.lost or self.duplicated or self.wrong_balances)


@dataclass(slots=True)
class Ledger:
    """The history of one run, written by the feeder and the reader."""

    due: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    seen: Counter[int] = field(default_factory=Counter)
    balances: dict[str, int] = field(default_factory=dict)

    def paid(self, account: str, amount: int) -> None:
        """A payment that the broker acknowledged."""
        self.sent += 1
        self.due[account] += amount

    def receipt(self, payment: int, account: str, balance: int) -> None:
        """A receipt, in the order of its partition (an account lives in one partition)."""
        self.seen[payment] += 1
        self.balances[account] = balance

    def judge(self, verdict: Verdict) -> None:
        """Write what the history shows into ``verdict``."""
        verdict.sent = self.sent
        verdict.received = self.seen.total()
        verdict.lost = self.sent - len(self.seen)
        verdict.duplicated = verdict.received - len(self.seen)
        verdict.wrong_balances = sum(
            self.balances.get(account, 0) != amount for account, amount in self.due.items()
        )
