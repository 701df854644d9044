"""Owns the verdict about a law: kept, broken, not tried or not possible, with the evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum

from msgspec import Struct

from windlass.chaos.laws.history import History

_MAX_SHOWN = 20


class Standing(StrEnum):
    """How a law came out."""

    KEPT = "kept"
    BROKEN = "broken"
    NOT_TRIED = "not tried"
    NOT_POSSIBLE = "not possible"


class Violation(Struct, frozen=True, kw_only=True):
    """A place where a law was broken: the job or key, and what the witnesses say."""

    subject: str
    problem: str


class Verdict(Struct, frozen=True, kw_only=True):
    """What was found about one law."""

    law: str
    promise: str
    standing: Standing
    checked: int
    """How many pieces of evidence there were."""
    violations: tuple[Violation, ...] = ()
    count: int = 0
    """How many violations there are in all; only the first are listed."""
    note: str = ""


Judge = Callable[[History], "Finding"]


class Finding(Struct, frozen=True, kw_only=True):
    """What a law found: the number of things that it looked at, and the violations among them."""

    checked: int
    violations: Sequence[Violation] = ()
    note: str = ""
    impossible: str = ""
    """Why the store cannot have this at all."""


def excuses(count: int) -> str:
    """Return how many runs a law did not judge; empty: it judged all."""
    return f"runs excused by faults: {count:,}" if count else ""


class Law(Struct, frozen=True, kw_only=True):
    """A promise, and the function that judges it."""

    name: str
    promise: str
    judge: Judge

    def verdict(self, history: History) -> Verdict:
        """Judge a history."""
        finding = self.judge(history)
        standing = Standing.KEPT
        if finding.violations:
            standing = Standing.BROKEN
        elif finding.impossible:
            standing = Standing.NOT_POSSIBLE
        elif not finding.checked:
            standing = Standing.NOT_TRIED
        return Verdict(
            law=self.name,
            promise=self.promise,
            standing=standing,
            checked=finding.checked,
            violations=tuple(finding.violations[:_MAX_SHOWN]),
            count=len(finding.violations),
            note=finding.impossible or finding.note,
        )
