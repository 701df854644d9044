"""Owns the sheet of a kind: its runs of the last hour, how long they took, how many failed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from windlass.cli import show
from windlass.cli.screen import figures
from windlass.cli.screen.leaves import pairs, title
from windlass.cli.sparks import bar
from windlass.core.stats import KindFigures

_BAR = 30


def kind_sheet(kind: KindFigures) -> Iterator[RenderableType]:
    """Tell about a kind at length."""
    ends = f"{kind.completed:,} completed, {kind.failed:,} failed, {kind.cancelled:,} cancelled"
    yield title("kind", kind.name)
    yield pairs(
        {
            "last hour": f"{show.plural(kind.runs, 'run')}: {ends}",
            "of the failed": f"{kind.retried:,} to be tried again, {kind.dead:,} dead",
            "lately": f"{figures.rate(kind.rate)} runs a second",
            "slots": f"{figures.rate(kind.busy)} busy on the average",
            "took": _percentiles(kind.durations),
            "waited": _percentiles(kind.waits),
        }
    )
    yield Text()
    yield Text("   ago    runs  failed", "bold")
    yield from _history(kind.history, kind.failures)


def _percentiles(times: Mapping[str, float]) -> str:
    told = "   ".join(f"{name} {figures.span(seconds)}" for name, seconds in times.items())
    return told or "not known: nothing has run"


def _history(runs: Sequence[int], failures: Sequence[int]) -> Iterator[Text]:
    """Draw a bar for each five minutes, the newest first."""
    most = max(runs, default=0)
    for ago, (ran, failed) in enumerate(zip(reversed(runs), reversed(failures), strict=False)):
        full, _ = bar(ran / most if most else 0.0, _BAR)
        bad, _ = bar(failed / most if most else 0.0, _BAR)
        good = full[len(bad) :]
        yield Text.assemble(
            f"{ago * 5:>4}m  {figures.count(ran):>6}  ",
            (f"{figures.count(failed):>6}", "red" if failed else "dim"),
            "  ",
            (bad, "red"),
            (good, "cyan"),
        )
