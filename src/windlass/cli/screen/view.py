"""Owns what somebody looks at, and what a key does to that; what is to be done, others do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal
from uuid import UUID

from windlass.cli.screen import figures
from windlass.cli.screen.cells import tame
from windlass.cli.screen.panels import ERRORS, KINDS, PANELS, QUEUES, Looked, Row
from windlass.cli.screen.rows import waiting
from windlass.core.job import Job
from windlass.core.metrics import NAMES, OTHER
from windlass.core.states import State
from windlass.core.stats import ErrorFigures, KindFigures, QueueFigures

Rows = Sequence[Sequence[Row]]
_PAGE = 10
_STEPS = {
    "up": -1,
    "k": -1,
    "down": 1,
    "j": 1,
    "page up": -_PAGE,
    "page down": _PAGE,
    "home": -(10**9),
    "g": -(10**9),
    "end": 10**9,
    "G": 10**9,
}
_ONLY_THESE = "p pauses a queue or a kind: choose one there, with 1 or 2"
_SEVERAL = "these are several queues, too many to tell apart: windlass queues pause QUEUE"
_ONLY_ERRORS = "r redrives the dead jobs of an error: choose one there, with 3"

_ONLY_LATER = "r retries a job that is to run later, or redrives one that is dead: this is neither"


@dataclass(frozen=True, kw_only=True)
class Lever:
    """Something that changes the store, once it is confirmed."""

    verb: Literal["pause", "resume", "redrive", "retry"]
    what: Literal["queue", "kind", "error", "job"]
    name: str
    kind: str = ""
    """Of an error."""


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A question that is answered with y, or not."""

    question: str
    lever: Lever


Sheet = Literal["help", "alarms", "row", "job"]


@dataclass(frozen=True, kw_only=True)
class View:
    """What is looked at: a panel, a row in each, what is asked or typed, a sheet above them."""

    panel: int = QUEUES
    chosen: tuple[str, ...] = ("",) * len(PANELS)
    """The keys of rows, so that a row stays chosen when others come and go."""
    filter: str = ""
    typing: bool = False
    asked: Ask | None = None
    sheet: Sheet | None = None
    top: int = 0
    """The first line of the sheet that is seen."""
    note: str = ""
    jobs: tuple[UUID, ...] = ()
    """Those on the sheet of a row, of which one can be chosen."""
    job: int = 0
    """Which of them is chosen."""
    shown: Job | None = None
    """The one on the sheet of a job, once it is there."""


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What a key asks for that is not only a matter of looking."""

    quit: bool = False
    inspect: Row | None = None
    show: UUID | None = None
    pull: Lever | None = None


def rows_of(looked: Looked | None, sought: str) -> list[list[Row]]:
    """Return the rows of all panels that a filter lets through."""
    if looked is None:
        return [[] for _ in PANELS]
    wanted = sought.casefold()
    return [
        [row for row in panel.rows(looked) if wanted in row.found_by.casefold()] for panel in PANELS
    ]


def position(view: View, rows: Rows) -> int:
    """Return which row of the panel is chosen: the first, if the one that was is gone."""
    keys = [row.key for row in rows[view.panel]]
    chosen = view.chosen[view.panel]
    return keys.index(chosen) if chosen in keys else 0


def press(view: View, key: str, rows: Rows, looked: Looked | None) -> tuple[View, Wish | None]:
    """Return what is looked at after a key, and what it asks for."""
    view = replace(view, note="")
    if view.asked is not None:
        return _answered(view, view.asked, key)
    if view.typing:
        return _typed(view, key), None
    if key == "r" and view.sheet == "job":
        return _asking_of_job(view), None
    if key in ("p", "r"):
        return _levered(view, key, rows, looked), None
    if key == "enter" and view.sheet in ("row", "job") and view.jobs:
        top = view.top if view.sheet == "job" else 0
        shown = replace(view, sheet="job", top=top, shown=None)
        return shown, Wish(show=view.jobs[view.job])
    if key == "enter" and view.sheet in (None, "row"):
        return _inspected(view, rows)
    if view.sheet is not None:
        return _turned(view, key), None
    if key == "q":
        return view, Wish(quit=True)
    return _moved(view, key, rows), None


def _answered(view: View, ask: Ask, key: str) -> tuple[View, Wish | None]:
    if key in ("y", "Y"):
        return replace(view, asked=None), Wish(pull=ask.lever)
    return replace(view, asked=None, note="nothing was changed"), None


def _typed(view: View, key: str) -> View:
    if key == "enter":
        return replace(view, typing=False)
    if key == "escape":
        return replace(view, typing=False, filter="")
    if key == "clear":
        return replace(view, filter="")
    if key == "backspace":
        return replace(view, filter=view.filter[:-1])
    typed = key.removeprefix("paste:") if key.startswith("paste:") else key
    if typed == key and len(key) > 1:
        return view
    return replace(view, filter=(view.filter + tame(typed.strip("\r\n")))[:100])


def _turned(view: View, key: str) -> View:
    """Turn the pages of a sheet, or close it."""
    if key in ("escape", "q", "enter", "left", "backspace", "?", "!"):
        return replace(view, sheet="row" if view.sheet == "job" else None, top=0)
    if view.sheet == "row" and len(view.jobs) > 1 and key in _STEPS:
        return replace(view, job=min(max(view.job + _STEPS[key], 0), len(view.jobs) - 1))
    return replace(view, top=max(view.top + _STEPS.get(key, 0), 0))


def _inspected(view: View, rows: Rows) -> tuple[View, Wish | None]:
    if not rows[view.panel]:
        return replace(view, note="there is no row to look into"), None
    row = rows[view.panel][position(view, rows)]
    return replace(_choose(view, row.key), sheet="row", jobs=(), job=0), Wish(inspect=row)


def _moved(view: View, key: str, rows: Rows) -> View:
    if key in ("?", "!"):
        return replace(view, sheet="help" if key == "?" else "alarms", top=0)
    if key == "/":
        return replace(view, typing=True)
    if key == "escape":
        return replace(view, filter="")
    if key in ("tab", "right", "back", "left"):
        step = 1 if key in ("tab", "right") else -1
        return replace(view, panel=(view.panel + step) % len(PANELS))
    if key in "1234":
        return replace(view, panel=int(key) - 1)
    if key in _STEPS and rows[view.panel]:
        last = len(rows[view.panel]) - 1
        index = min(max(position(view, rows) + _STEPS[key], 0), last)
        return _choose(view, rows[view.panel][index].key)
    return view


def _choose(view: View, key: str) -> View:
    chosen = (*view.chosen[: view.panel], key, *view.chosen[view.panel + 1 :])
    return replace(view, chosen=chosen)


def _levered(view: View, key: str, rows: Rows, looked: Looked | None) -> View:
    """Ask whether something is to be done to the chosen row."""
    allowed = (QUEUES, KINDS) if key == "p" else (ERRORS,)
    if view.panel not in allowed:
        return replace(view, note=_ONLY_THESE if key == "p" else _ONLY_ERRORS)
    if not rows[view.panel] or looked is None:
        return replace(view, note="there is no row to do that to")
    row = rows[view.panel][position(view, rows)]
    # Whoever says yes has seen which one it is: it stays the chosen one, whatever comes first then.
    view = _choose(view, row.key)
    if isinstance(row.figures, ErrorFigures):
        return _asking_to_redrive(view, row.figures)
    if row.key == OTHER and len(rows[view.panel]) > NAMES:
        return replace(view, note=_SEVERAL)
    if isinstance(row.figures, QueueFigures | KindFigures):
        return replace(view, asked=_pausing(row.figures, looked))
    return view


def _pausing(chosen: QueueFigures | KindFigures, looked: Looked) -> Ask:
    what: Literal["queue", "kind"] = "queue" if isinstance(chosen, QueueFigures) else "kind"
    names = looked.pauses.queues if what == "queue" else looked.pauses.kinds
    verb: Literal["pause", "resume"] = "resume" if chosen.name in names else "pause"
    held = ""
    if isinstance(chosen, QueueFigures):
        held = f", {figures.count(waiting(chosen))} waiting"
    rest = "; what runs goes on" if verb == "pause" else ""
    return Ask(
        question=f"{verb} {what} {tame(chosen.name)}{held}{rest}?",
        lever=Lever(verb=verb, what=what, name=chosen.name),
    )


def _asking_to_redrive(view: View, error: ErrorFigures) -> View:
    if not error.dead:
        return replace(view, note="no job is dead of this: what failed is tried again by itself")
    jobs = "1 dead job" if error.dead == 1 else f"{error.dead:,} dead jobs"
    ask = Ask(
        question=f"redrive {jobs} of {tame(error.kind)}, {tame(error.error)}?",
        lever=Lever(verb="redrive", what="error", name=error.group, kind=error.kind),
    )
    return replace(view, asked=ask)


def _asking_of_job(view: View) -> View:
    """Ask whether the job that is shown is to be run now, or once more."""
    job = view.shown
    if job is None or job.state not in (State.SCHEDULED, State.DEAD):
        return replace(view, note=_ONLY_LATER)
    verb: Literal["retry", "redrive"] = "retry" if job.state is State.SCHEDULED else "redrive"
    lever = Lever(verb=verb, what="job", name=str(job.id))
    return replace(
        view, asked=Ask(question=f"{verb} job {job.id} of {tame(job.kind)}?", lever=lever)
    )
