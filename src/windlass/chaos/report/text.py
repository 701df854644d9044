"""Owns the report as text: lines that any terminal, log and mail can show."""

from __future__ import annotations

from collections.abc import Iterator

from windlass.chaos.laws.checker import is_unproved
from windlass.chaos.laws.verdict import Standing, Verdict
from windlass.chaos.report.report import Report
from windlass.core.values.text import inert

_MARKS = {
    Standing.KEPT: "kept",
    Standing.BROKEN: "BROKEN",
    Standing.NOT_TRIED: "not tried",
    Standing.NOT_POSSIBLE: "not possible",
}


def lines_of(report: Report) -> Iterator[str]:
    """Yield the report, line by line; text from outside is made harmless."""
    return map(inert, _lines(report))


def _lines(report: Report) -> Iterator[str]:
    yield f"windlass {report.version} chaos on {report.store}, seed {report.seed}"
    yield from _figures(report)
    yield ""
    yield "laws"
    for verdict in report.verdicts:
        yield from _law(verdict)
    yield ""
    yield "faults"
    yield from _faults(report)
    yield ""
    yield f"the same faults again: {report.command}"
    if report.directory:
        yield f"ledger and logs: {report.directory}"
    yield summary(report)


def summary(report: Report) -> str:
    """Return the last line: whether every law was kept."""
    broken = [each.law for each in report.verdicts if each.standing is Standing.BROKEN]
    if broken:
        return f"BROKEN: {', '.join(broken)}"
    if unproved := [each.law for each in report.verdicts if is_unproved(each)]:
        return f"NOT TRIED: {', '.join(unproved)}; a run without this evidence proves nothing"
    tried = sum(each.standing is Standing.KEPT for each in report.verdicts)
    return f"kept: all {tried} laws that could be tried"


def _figures(report: Report) -> Iterator[str]:
    outcomes = ", ".join(f"{count:,} {state}" for state, count in sorted(report.outcomes.items()))
    took = f"{report.seconds:.0f} s"
    yield f"{report.accepted:,} jobs acknowledged in {took}; in the store: {outcomes}"
    thrown = sum(each.number > 0 for each in report.strikes)
    yield (
        f"{report.runs:,} runs, {thrown} faults, {report.refused:,} calls of "
        f"producers refused or uncertain; lease {report.lease:g} s"
    )
    if report.is_cut_short:
        yield "Ctrl-C ended the storm before its time"
    if memory := memory_of(report):
        yield f"memory of {memory}"


def memory_of(report: Report) -> str:
    """Return the memory of one worker, from its first quarter to its last; empty: not seen."""
    for longest in report.memory[:1]:
        return (
            f"the worker that served longest, {longest.seconds:.0f} s: "
            f"{longest.first / 1e6:.1f} MB in the first quarter, {longest.last / 1e6:.1f} MB in "
            "the last"
        )
    return ""


def _law(verdict: Verdict) -> Iterator[str]:
    evidence = f" ({verdict.checked:,} checked)" if verdict.checked else ""
    yield f"  {_MARKS[verdict.standing]:<13}{verdict.law:<12} {verdict.promise}{evidence}"
    if verdict.note:
        yield f"{'':<28}{verdict.note}"
    for violation in verdict.violations:
        yield f"{'':<28}{violation.subject}: {violation.problem}"
    if verdict.count > len(verdict.violations):
        yield f"{'':<28}and {verdict.count - len(verdict.violations):,} more"


def _faults(report: Report) -> Iterator[str]:
    for each in report.strikes:
        back = (
            f"{each.interrupted} interrupted, again after {each.recovery_p50:.2f} s (p50), "
            f"{each.recovery_max:.2f} s (max)"
            if each.interrupted
            else ""
        )
        lasting = f"{each.ended - each.began:.1f} s" if each.ended - each.began > 0.05 else ""
        start = "" if each.first_start is None else f"first start after {each.first_start:.2f} s"
        parts = "  ".join(filter(None, (lasting, each.note, start, back)))
        yield f"  {each.began:7.1f} s  {each.fault:<21} {parts}".rstrip()
    for fault, reason in report.impossible.items():
        yield f"  {'not thrown':<10} {fault:<21} {reason}"
