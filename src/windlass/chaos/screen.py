"""Owns the view of a run in a terminal: a live line there, a line every few seconds elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.text import Text

from windlass.chaos.run import Show, View
from windlass.core.jobs.states import FINISHED, State

_LINE_SECONDS = 5.0
_BAR = 24


@contextmanager
def progress(console: Console, seconds: float) -> Iterator[Show]:
    """Yield a function that shows how far the run is."""
    if not console.is_terminal:
        yield _lines(console, seconds)
        return
    with Live(Text("starting the workers"), console=console, transient=True) as live:
        yield lambda view: live.update(_bar(view, seconds))


def _lines(console: Console, seconds: float) -> Show:
    said_at = 0.0

    def show(view: View) -> None:
        nonlocal said_at
        if time.monotonic() - said_at >= _LINE_SECONDS:
            said_at = time.monotonic()
            console.print(_described(view, seconds))

    return show


def _bar(view: View, seconds: float) -> Text:
    part = view.seconds / max(seconds, 1.0) if view.phase == "storm" else view.phase != "start"
    full = round(_BAR * min(part, 1.0))
    fault = (f"  {view.current}", "bold red") if view.current else ""
    return Text.assemble(
        ("█" * full, "cyan"), ("░" * (_BAR - full), "dim"), " ", _described(view, seconds), fault
    )


def _described(view: View, seconds: float) -> str:
    if view.phase == "start":
        return f"start  {view.seconds:.0f} s  {view.workers} workers serve"
    done = sum(view.counts.get(state, 0) for state in FINISHED)
    open_ = sum(count for state, count in view.counts.items() if state not in FINISHED)
    dead = view.counts.get(State.DEAD, 0)
    return (
        f"{view.phase}  {_time(view, seconds)}  faults {view.faults}/{view.planned}  "
        f"{done:,} done  {open_:,} open  {dead:,} dead"
    )


def _time(view: View, seconds: float) -> str:
    if view.phase != "storm":
        return f"{view.seconds:.0f} s"
    if view.seconds <= seconds + 1:
        return f"{min(view.seconds, seconds):.0f} of {seconds:.0f} s"
    return f"{view.seconds:.0f} s, until all faults are thrown"
