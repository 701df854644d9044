"""Owns the lines of `windlass worker` at a terminal: what it serves, and how to stop it.

Written without rich, which takes longer to load than a worker needs to begin with its first job.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from windlass.core.values.names import is_builtin
from windlass.core.values.text import inert, listed
from windlass.observability.logs import has_colors, is_for_people
from windlass.process.supervisor_channel import Hello
from windlass.settings import Settings
from windlass.version import __version__

_MAX_KINDS_SHOWN = 6


class Banner:
    """Prints the configuration of a worker, once, and again if new code changes it."""

    def __init__(self, reference: str) -> None:
        self._reference = reference
        self._printed = ""

    def greeted(self, hello: Hello, metrics_address: str) -> None:
        """Print what a worker serves; programs read it in its log lines."""
        if not is_for_people():
            return
        dim, cyan, bold, off = ("\x1b[2m", "\x1b[36m", "\x1b[1m", "\x1b[0m")
        if not has_colors(sys.stderr):
            dim = cyan = bold = off = ""
        lines = [f"{bold}windlass{off} {__version__}  {cyan}{inert(self._reference)}{off}"]
        for name, value in _rows(hello, metrics_address):
            lines.append(f"  {dim}{name:8}{off} {inert(value)}")
        text = "\n".join([*lines, "", ""])
        if text != self._printed:
            self._printed = text
            sys.stderr.write(text)
            sys.stderr.flush()

    def interrupted(self, running: int) -> None:
        """Explain why the first Ctrl-C does not end the worker at once."""
        if running and sys.stderr.isatty():
            # Imported here, because it loads rich.
            from windlass.cli.output import console

            jobs = console.plural(running, "job")
            them = "it" if running == 1 else "them"
            console.note(f"finishing {jobs}; press Ctrl-C again to release {them} now")


def _rows(hello: Hello, address: str) -> Iterator[tuple[str, str]]:
    yield "store", hello.location
    yield "queues", _queues(hello.settings)
    shown = [kind for kind in hello.kinds if not is_builtin(kind)]
    yield "kinds", listed(shown, _MAX_KINDS_SHOWN) or "none"
    yield "at once", _at_once(hello.settings)
    if address:
        yield "metrics", f"http://{address}/metrics"
        yield "health", f"http://{address}/health"
    yield "stop", "Ctrl-C drains; a second Ctrl-C releases running jobs"


def _queues(settings: Settings) -> str:
    served = ", ".join(map(str, settings.queues)) or "all"
    return f"{served} but {', '.join(settings.exclude)}" if settings.exclude else served


def _at_once(settings: Settings) -> str:
    threads = "1 thread" if settings.threads == 1 else f"{settings.threads} threads"
    each = "" if str(settings.processes) == "1" else f" in each of {settings.processes} processes"
    return f"{settings.concurrency} jobs{each}; def handlers in {threads}"
