"""Owns names that somebody invents to break what shows them, and jobs of such queues and kinds."""

from __future__ import annotations

from windlass import Windlass
from windlass.core.jobs.job import NewJob

FORGED = 'x"} 1\nwindlass_forged{process="1"} 0\n# '
_HOSTILE = (
    FORGED,
    'a"b',
    "a\\",
    'a\\"} 1',
    "a\\nb",
    "line\nfeed",
    "carriage\rreturn",
    "line\u2028separator",
    "\x1b[2Jred",
    "\x85next",
    "x" * 300,
    "é" * 300,
    "other",
    "{}",
    "# TYPE windlass_up counter",
)
_UNSTORABLE = ("nul\x00", "surrogate\ud800", "\udfff")
"""What only the store in memory can hold."""
PRINTABLE = ('a"b', "a\\", 'a\\"} 1', "x" * 180, "é" * 180, "other", "{}", "a,b=c", "a\\n")
"""Names that an app may give its kinds, though they are no kinder."""


def names(count: int, *, unstorable: bool) -> list[str]:
    """Invent so many names, no two of which are the same."""
    hostile = _HOSTILE + (_UNSTORABLE if unstorable else ())
    return [f"{hostile[n % len(hostile)]}{n}" for n in range(count)]


async def plant(app: Windlass, count: int, *, unstorable: bool) -> None:
    """Enqueue so many jobs, each of a queue and a kind of its own that nobody serves."""
    invented = names(count, unstorable=unstorable)
    jobs = [
        NewJob(id=app.ids.next(), kind=name, queue=f"q{name}", payload=b"{}") for name in invented
    ]
    for begin in range(0, count, 1_000):
        await app.store.enqueue(jobs[begin : begin + 1_000])
