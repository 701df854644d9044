"""Owns the output of the demo: a bar or plain lines while it runs, and a table at the end."""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from rich import box
from rich.console import Console, Group
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from windlass.core.jobs.job import Job
from windlass.core.jobs.states import FINISHED, State
from windlass.core.values.text import inert
from windlass.demo.tally import Tally

Show = Callable[[Counter[State]], None]
_LINE_SECONDS = 1.0
_PACE = "the slow ones block one of 4 threads each"
_MAKE = (("less README.md", "write your first job"), ("make test", "run the tests on this machine"))
_ALONE = (("doctor", "check your setup"), ("worker --help", "serve an app of your own"))
_LONGER = ("demo --jobs 20000", "long enough to watch with windlass top")
_WEB = ("demo --web", "look at its jobs in a browser")


def beside(url: str) -> Text:
    """Say how to watch the demo from another terminal while it runs."""
    top = (f"{_command()} top --url {url}", "bold")
    web = (f"{_command()} web --url {url}", "bold")
    return Text.assemble("watch it live from another terminal:\n  ", top, "\n  ", web, "\n")


@contextmanager
def progress(total: int, console: Console) -> Iterator[Show]:
    """Yield a function that shows the progress: a bar on a terminal, else a line a second."""
    if not console.is_terminal:
        yield _lines(total, console)
        return
    columns = (
        BarColumn(bar_width=32),
        MofNCompleteColumn(),
        TextColumn("{task.description}", style="dim", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("", total=total)
        yield lambda counts: bar.update(
            task, completed=_done(counts), description=_described(counts)
        )


def summary(books: Sequence[Tally]) -> Table:
    """Show the tally, with the sums below."""
    names = ("enqueued", "runs", "completed", "retried", "snoozed", "dead")
    table = Table(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, show_footer=True, border_style="dim"
    )
    table.add_column("kind", "total", no_wrap=True)
    for name in names:
        total = sum(getattr(book, name) for book in books)
        table.add_column(name, f"{total:,}", justify="right", footer_style="bold", no_wrap=True)
    table.add_column("p50", justify="right", no_wrap=True)
    for book in books:
        values = [_number(name, getattr(book, name)) for name in names]
        table.add_row(book.kind, *values, _milliseconds(book.typical))
    return table


def closing(jobs: Sequence[Job]) -> Group:
    """Print that it adds up, how long it took, which job is dead and why, and what to type next."""
    took = _took(jobs)
    ends = sum(len(job.history) + (job.state is State.COMPLETED) for job in jobs)
    unbegun = sum(job.attempt for job in jobs) - ends
    given_back = f" + {unbegun:,} released before they began" if unbegun else ""
    lines = [
        Text("\nIt adds up: enqueued = completed + dead"),
        Text(f"            runs = completed + retried + snoozed + dead{given_back}"),
        Text(f"{len(jobs):,} jobs in {took:.1f} s, {len(jobs) / took:,.0f} a second; {_PACE}."),
    ]
    for job in jobs:
        if job.state is State.DEAD:
            text = inert(f"{job.kind}, {job.reason}: {job.error}")
            lines.append(Text.assemble("Dead letter, kept for inspection: ", (text, "red")))
    return Group(*lines, Text("\nCommands to try next:"), *_next_lines())


def _took(jobs: Sequence[Job]) -> float:
    began = min(
        started
        for job in jobs
        for started in (job.started_at, *(attempt.started_at for attempt in job.history))
        if started is not None
    )
    ended = max(job.finished_at for job in jobs if job.finished_at is not None)
    return (ended - began).total_seconds()


def _next_lines() -> list[Text]:
    command = _command()
    if Path("Makefile").exists() and Path("README.md").exists():
        rest = list(_MAKE)
    else:
        rest = [(f"{command} {arguments}", text) for arguments, text in _ALONE]
    longer, why = _LONGER
    page, seen = _WEB
    lines = [
        (f"{command} {page}", seen),
        (f"{command} {longer}", why),
        (f"{command} --help", "every command"),
        *rest,
    ]
    width = max(len(line) for line, _ in lines)
    return [
        Text.assemble("  ", (f"{line:<{width}}", "bold"), (f"   {text}", "dim"))
        for line, text in lines
    ]


def _command() -> str:
    if shutil.which("windlass"):
        return "windlass"
    script = Path(sys.executable).with_name("windlass")
    if not script.exists():
        return f"{Path(sys.executable).name} -m windlass"
    return str(script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script)


def _lines(total: int, console: Console) -> Show:
    said_at = 0.0

    def show(counts: Counter[State]) -> None:
        nonlocal said_at
        done, now = _done(counts), time.monotonic()
        if now - said_at >= _LINE_SECONDS or done == total:
            said_at = now
            console.print(f"{done:,} of {total:,} done  {_described(counts)}".rstrip())

    return show


def _done(counts: Counter[State]) -> int:
    return sum(counts[state] for state in FINISHED)


def _described(counts: Counter[State]) -> str:
    words = {
        State.PENDING: "pending",
        State.RUNNING: "running",
        State.SCHEDULED: "scheduled",
        State.DEAD: "dead",
    }
    return "  ".join(f"{counts[state]:,} {word}" for state, word in words.items() if counts[state])


def _number(name: str, number: int) -> Text:
    styles = {"completed": "green", "retried": "yellow", "snoozed": "blue", "dead": "red"}
    return Text(f"{number:,}", styles.get(name, "")) if number else Text("·", "dim")


def _milliseconds(span: timedelta | None) -> str:
    return "" if span is None else f"{span / timedelta(milliseconds=1):,.0f} ms"
