"""Owns the question where the time of a drain goes: by thread, by layer, by function.

A drain runs in this process while a thread looks every millisecond at what all others do. What a
thread spends of the CPU is the system's own figure, and exact. Which lines it was spent on is a
sample, and tilted: the looker gets the interpreter's lock most easily where others let go of it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.table import Table

from tests.support.postgres.server import Server
from windlass import Windlass
from windlass.observability.logs import configure_logging

_LOOK = 0.001
_SHORTEST_SWITCH = 0.0002
_WAITING = {"_next", "_serve", "_wait_for_tstate_lock", "select", "wait"}
"""Functions in which a thread has nothing to do: those of the libraries, and of our own threads."""
_SHOWN = 12


@dataclass(frozen=True)
class _Place:
    """A line of work: the layer of the package that it belongs to, and the function."""

    layer: str
    function: str


@dataclass
class _Seen:
    """What one thread was seen doing."""

    samples: int = 0
    waiting: int = 0
    cpu: float = 0.0
    layers: Counter[str] = field(default_factory=Counter)
    functions: Counter[str] = field(default_factory=Counter)


class Looker:
    """Looks at all threads but its own, until told to stop."""

    def __init__(self) -> None:
        self.seen: dict[str, _Seen] = {}
        self._clocks: dict[str, float] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="looker", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._clocks = _cpu_times()
        sys.setswitchinterval(_SHORTEST_SWITCH)
        self._thread.start()

    def stop(self) -> None:
        """Look no more, and count what every thread has spent since the start."""
        for name, spent in _cpu_times().items():
            self._of(name).cpu = spent - self._clocks.get(name, 0.0)
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(_LOOK):
            names = {thread.ident: thread.name for thread in threading.enumerate()}
            for ident, frame in sys._current_frames().items():
                if ident != self._thread.ident:
                    self._note(self._of(names.get(ident, "?")), frame)

    def _of(self, name: str) -> _Seen:
        return self.seen.setdefault(name, _Seen())

    def _note(self, seen: _Seen, frame: FrameType) -> None:
        seen.samples += 1
        if frame.f_code.co_name in _WAITING:
            seen.waiting += 1
            return
        place = _place(frame)
        seen.layers[place.layer] += 1
        seen.functions[place.function] += 1


def main() -> None:
    """Fill, drain under the looker, and print what it saw."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile", description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--concurrency", type=int, help="instead of the default")
    parser.add_argument("--store", choices=("postgres", "sqlite"), default="postgres")
    options = parser.parse_args()
    with _database(options.store) as url:
        looker, seconds = asyncio.run(_drain(url, options.jobs, options.concurrency))
    console = Console()
    console.print(
        f"{options.jobs:,} no-op jobs in {seconds:.2f} s under the profiler "
        f"({options.jobs / seconds:,.0f}/s; faster without it)\n"
    )
    _show_threads(console, looker.seen, seconds)
    for name, seen in _busiest(looker.seen):
        _show_places(console, name, seen)


@contextmanager
def _database(store: str) -> Iterator[str]:
    """Give a database of one kind on a real disk, for as long as this lasts."""
    with tempfile.TemporaryDirectory(prefix="windlass-profile-", dir="/var/tmp") as directory:
        if store == "sqlite":
            yield f"sqlite:///{Path(directory) / 'windlass.db'}"
            return
    with Server() as server:
        yield server.url()


async def _drain(url: str, jobs: int, slots: int | None) -> tuple[Looker, float]:
    app = Windlass(url, log_level="warning")
    configure_logging(level="warning", format="console")
    await app.store.migrate()
    ended = asyncio.Event()
    left = jobs

    @app.job
    async def noop() -> None:
        nonlocal left
        left -= 1
        if not left:
            ended.set()

    await app.aenqueue_many([noop.draft() for _ in range(jobs)])
    looker = Looker()
    worker = asyncio.create_task(
        (app.worker(concurrency=slots, claim_size=slots // 4) if slots else app.worker()).run()
    )
    looker.start()
    began = time.perf_counter()
    await ended.wait()
    seconds = time.perf_counter() - began
    looker.stop()
    worker.cancel()
    with suppress(asyncio.CancelledError):
        await worker
    await app.aclose()
    return looker, seconds


def _cpu_times() -> dict[str, float]:
    """Return what every living thread has spent of the CPU so far, in seconds."""
    return {
        thread.name: time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
        for thread in threading.enumerate()
        if thread.ident is not None
    }


def _place(frame: FrameType) -> _Place:
    """Find the innermost function of ours: what the libraries below it do is done for it."""
    at: FrameType | None = frame
    while at is not None:
        module = str(at.f_globals.get("__name__", ""))
        if module.startswith("windlass."):
            function = f"{module.removeprefix('windlass.')}.{at.f_code.co_qualname}"
            return _Place(".".join(module.split(".")[1:3]), function)
        at = at.f_back
    module = str(frame.f_globals.get("__name__", ""))
    return _Place(module.split(".")[0], f"{module}.{frame.f_code.co_qualname}")


def _busiest(seen: dict[str, _Seen]) -> list[tuple[str, _Seen]]:
    busy = [(name, each) for name, each in seen.items() if each.samples > each.waiting]
    busy.sort(key=lambda item: item[1].cpu, reverse=True)
    return busy[:3]


def _show_threads(console: Console, seen: dict[str, _Seen], seconds: float) -> None:
    table = Table(title="threads", box=None, title_justify="left")
    for heading in ("thread", "CPU s", "of the time", "seen waiting"):
        table.add_column(heading, justify="left" if heading == "thread" else "right")
    for name, each in sorted(seen.items(), key=lambda item: -item[1].cpu):
        waiting = f"{each.waiting / each.samples:.0%}" if each.samples else ""
        table.add_row(_title(name), f"{each.cpu:.2f}", f"{each.cpu / seconds:.0%}", waiting)
    console.print(table)


def _show_places(console: Console, name: str, seen: _Seen) -> None:
    busy = seen.samples - seen.waiting
    table = Table(title=f"\n{_title(name)}, while not waiting", box=None, title_justify="left")
    table.add_column("share", justify="right")
    table.add_column("layer or function")
    for layer, count in seen.layers.most_common():
        table.add_row(f"{count / busy:.0%}", f"[bold]{layer}[/]")
    for function, count in seen.functions.most_common(_SHOWN):
        table.add_row(f"{count / busy:.0%}", function)
    console.print(table)


def _title(name: str) -> str:
    return "event loop (MainThread)" if name == "MainThread" else name


if __name__ == "__main__":
    main()
