"""Owns the sheet of a kind: its runs of the last hour, their durations and failures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from windlass.cli.output import console as show
from windlass.cli.output.sparklines import bar
from windlass.cli.top.content.sheets import pairs, title
from windlass.core.stats.stats import KindFigures
from windlass.core.values import figures

_BAR_WIDTH = 30


def kind_sheet(kind: KindFigures) -> Iterator[RenderableType]:
    ends = f"{kind.completed:,} completed, {kind.failed:,} failed, {kind.cancelled:,} cancelled"
    yield title("kind", kind.name)
    yield pairs(
        {
            "last hour": f"{show.plural(kind.runs, 'run')}: {ends}",
            "of those failed": f"{kind.retried:,} to be retried, {kind.dead:,} dead",
            "lately": f"{figures.rate(kind.rate)} runs a second",
            "slots": f"{figures.rate(kind.busy)} busy on average",
            "took": _percentiles(kind.durations),
            "waited": _percentiles(kind.waits),
        }
    )
    yield Text()
    yield Text("   ago    runs  failed", "bold")
    yield from _history(kind.history, kind.failures)


def _percentiles(times: Mapping[str, float]) -> str:
    text = "   ".join(f"{name} {figures.span(seconds)}" for name, seconds in times.items())
    return text or "unknown: nothing has run"


def _history(runs: Sequence[int], failures: Sequence[int]) -> Iterator[Text]:
    """Draw a bar for each five minutes, the newest first."""
    most = max(runs, default=0)
    for ago, (ran, failed) in enumerate(zip(reversed(runs), reversed(failures), strict=False)):
        full, _ = bar(ran / most if most else 0.0, _BAR_WIDTH)
        bad, _ = bar(failed / most if most else 0.0, _BAR_WIDTH)
        good = full[len(bad) :]
        yield Text.assemble(
            f"{ago * 5:>4}m  {figures.count(ran):>6}  ",
            (f"{figures.count(failed):>6}", "red" if failed else "dim"),
            "  ",
            (bad, "red"),
            (good, "cyan"),
        )
