"""Owns the pages of the Python API: which public names are on which page.

mkdocstrings renders each name from its docstring and signature.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import windlass
from tools.site.reference.chapter import Chapter, Page
from tools.site.reference.errors import CHAPTER as ERRORS
from windlass.app.app import INTERNAL

_FOLDER = "reference/api"
_PACKAGE = Path(windlass.__file__).parent


def _modules() -> list[str]:
    """Return the modules whose `__all__` is public: those that pages name, and all of contrib."""
    found = ((_PACKAGE / "contrib").glob("[a-z]*.py"), (_PACKAGE / "contrib").glob("*/__init__.py"))
    of_contrib = sorted(
        each.parent.name if each.name == "__init__.py" else each.stem for each in chain(*found)
    )
    return ["windlass", "windlass.testing", "windlass.web"] + [
        f"windlass.contrib.{name}" for name in of_contrib
    ]


def _public(module: str) -> list[str]:
    """Return the `__all__` of a module, read without the framework that its import would need."""
    path = _PACKAGE.parent.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for node in ast.parse(file.read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [f"{module}.{name}" for name in ast.literal_eval(node.value)]
    return []


@dataclass(frozen=True, kw_only=True)
class _Part:
    """A page of the API: its title, and the names that it shows."""

    file: str
    title: str
    intro: str
    names: tuple[str, ...]
    also: tuple[str, ...] = ()
    """Names of classes that programs use as attributes of an app, and never import."""


PARTS = (
    _Part(
        file="app",
        title="Windlass: the app",
        intro="An app has the handlers, the settings and the store; it enqueues and makes workers.",
        names=("windlass.Windlass", "windlass.configure_logging", "windlass.__version__"),
    ),
    _Part(
        file="jobs",
        title="Enqueue, handles and jobs",
        intro="How jobs are made, and what one can ask about them.",
        names=(
            *("windlass.Handler", "windlass.Kind", "windlass.Draft", "windlass.FanOut"),
            *("windlass.Handle", "windlass.Job", "windlass.State", "windlass.Unique"),
            *("windlass.Secret", "windlass.Protobuf", "windlass.StreamRestart", "windlass.Budget"),
        ),
        also=("windlass.app.jobs.jobs.Jobs",),
    ),
    _Part(
        file="handlers",
        title="Handlers and their context",
        intro="What a handler sees of its run, and what it returns or raises to steer it.",
        names=(
            *("windlass.Context", "windlass.SyncContext", "windlass.AnyContext"),
            *("windlass.current_context", "windlass.Step", "windlass.current_step"),
            *("windlass.Snooze", "windlass.Cancel", "windlass.Inject", "windlass.Provided"),
            *("windlass.Middleware", "windlass.CallNext", "windlass.Callbacks"),
            *("windlass.MeasureRuns", "windlass.Meters"),
        ),
    ),
    _Part(
        file="policies",
        title="Retries, error classes and breakers",
        intro="What happens after a failure.",
        names=(*("windlass.Retry", "windlass.Backoff", "windlass.ErrorClass", "windlass.Breaker"),),
    ),
    _Part(
        file="workflows",
        title="Flows and pipelines",
        intro="Jobs that depend on other jobs.",
        names=(
            *("windlass.Flow", "windlass.Node", "windlass.After", "windlass.FlowResult"),
            *("windlass.Pipeline", "windlass.Stage", "windlass.PIPELINE"),
        ),
    ),
    _Part(
        file="control",
        title="Control, schedules and statistics",
        intro="What operators do, from code: `app.control`, `app.schedules`, `app.stats()`.",
        names=("windlass.Stats",),
        also=("windlass.app.control.control.Control", "windlass.app.schedules.Schedules"),
    ),
    _Part(
        file="testing",
        title="Testing",
        intro="Time travel for apps, and the laws that every store obeys.",
        names=tuple(
            f"windlass.testing.{name}"
            for name in (
                *("travel", "travel_fixture", "Travel", "LAWS", "laws_for", "Law", "Bench"),
                "ManualClock",
            )
        ),
    ),
    _Part(
        file="web",
        title="Web page",
        intro="Who may see and do what on the page: `app.web(access=...)`.",
        names=("windlass.web.Access", "windlass.web.Role"),
    ),
    _Part(
        file="frameworks",
        title="Frameworks",
        intro="Windlass inside Django, FastAPI, Flask, Starlette and Sentry.",
        names=tuple(
            name
            for module in _modules()
            if module.startswith("windlass.contrib.")
            for name in _public(module)
        ),
    ),
)


def _names() -> Iterator[str]:
    """Yield every public name, with its module."""
    for module in _modules():
        yield from _public(module)


def _anchor(name: str) -> str:
    own = name.removeprefix("windlass.")
    return ERRORS.anchor(own) if own in set(ERRORS.names()) else name


def _pages() -> list[Page]:
    return [Page(f"{_FOLDER}/{part.file}.md", _text(part)) for part in PARTS]


def _text(part: _Part) -> str:
    shown = [f"::: {name}{_hidden(name)}" for name in (*part.names, *part.also)]
    return "\n\n".join([f"# {part.title}", part.intro, *shown, ""])


def _hidden(name: str) -> str:
    """Return the option that leaves out what only other parts of Windlass use."""
    if name != "windlass.Windlass":
        return ""
    internal = "|".join(sorted({*INTERNAL, "aenqueue_draft"}))
    return f'\n    options:\n      filters: ["!^_", "!^({internal})$"]'


CHAPTER = Chapter(
    subject="public name",
    title="Python API",
    summary="every public class and function, with its signature",
    path=f"{_FOLDER}/app.md",
    names=_names,
    anchor=_anchor,
    pages=_pages,
    remedy="add it to a page in tools/site/reference/api.py",
)
