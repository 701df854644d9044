"""Owns the options that several commands have, so that they are the same everywhere."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import datetime
from functools import wraps
from inspect import Parameter, signature
from typing import Annotated, Any, TypeVar, cast, get_type_hints

import typer

from windlass.app import Windlass
from windlass.cli import app_target, completion
from windlass.core.failures.fingerprint import is_fingerprint
from windlass.core.jobs.ids import read_id
from windlass.core.jobs.queries import Where
from windlass.core.jobs.states import State
from windlass.core.values.durations import Duration

T = TypeVar("T")
App = Annotated[
    str | None,
    typer.Option(
        "--app", metavar="MODULE:ATTR", help="The app, which has its own URL. [env: WINDLASS_APP]"
    ),
]
Url = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="The store's URL. [env: WINDLASS_URL]"),
]
Reason = Annotated[
    str,
    typer.Option(
        "--reason", metavar="TEXT", show_default=False, help="The reason, kept in the audit log."
    ),
]
InSpace = Annotated[
    str | None,
    typer.Option(
        "--space",
        metavar="NAME",
        help="The space, if the app has several. [env: WINDLASS_SPACE]",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Write one JSON document to stdout.")]


def _check_id(text: str | None) -> str | None:
    if text is not None:
        with usage():
            read_id(text)
    return text


def _check_ids(texts: list[str] | None) -> list[str] | None:
    for text in texts or ():
        _check_id(text)
    return texts


def _id_argument(check: Callable[..., Any], complete: Callable[..., Any], help_: str) -> Any:
    return typer.Argument(
        metavar="ID", show_default=False, callback=check, autocompletion=complete, help=help_
    )


_ONE, _SEVERAL = "Its id, or a unique prefix of it.", "Ids of jobs, or unique prefixes."
Ids = Annotated[list[str], _id_argument(_check_ids, completion.job_ids, _ONE)]
MaybeIds = Annotated[list[str] | None, _id_argument(_check_ids, completion.job_ids, _SEVERAL)]
DeadIds = Annotated[list[str] | None, _id_argument(_check_ids, completion.dead_ids, _SEVERAL)]
Id = Annotated[str, _id_argument(_check_id, completion.job_ids, _ONE)]
DeadId = Annotated[str, _id_argument(_check_id, completion.dead_ids, _ONE)]
FlowId = Annotated[str, _id_argument(_check_id, completion.flow_ids, _ONE)]
OfKind = Annotated[
    str | None,
    typer.Option("--kind", help="Only jobs of this kind.", autocompletion=completion.kinds),
]
OfQueue = Annotated[
    str | None,
    typer.Option("--queue", help="Only jobs of this queue.", autocompletion=completion.queues),
]
OfStates = Annotated[
    list[State] | None,
    typer.Option("--state", help="Only jobs in this state; may be repeated."),
]
OfKey = Annotated[str | None, typer.Option("--key", help="Only jobs with this key.")]
OfError = Annotated[
    str | None,
    typer.Option("--error", metavar="TEXT", help="Only jobs whose last error contains this text."),
]
OfGroup = Annotated[
    str | None,
    typer.Option(
        "--group", metavar="GROUP", help="Only jobs of this error group; see dead groups."
    ),
]
OlderThan = Annotated[
    str | None,
    typer.Option("--older-than", metavar="1h", help="Only jobs enqueued longer ago than this."),
]
NewerThan = Annotated[
    str | None,
    typer.Option("--newer-than", metavar="1h", help="Only jobs enqueued since this long ago."),
]
Find = Annotated[
    str | None,
    typer.Option(
        "--find",
        metavar="SEARCH",
        help="Only jobs that match a search, like 'state:dead since:2h payload.order.id:42'.",
        autocompletion=completion.searches,
    ),
]
AtMost = Annotated[
    int | None, typer.Option("--limit", min=1, help="At most this many, oldest first.")
]
All = Annotated[bool, typer.Option("--all", help="All jobs.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count them.")]
Background = Annotated[
    bool,
    typer.Option("--background", help="Let workers do it, step by step; see: windlass bulk."),
]
Rate = Annotated[str | None, typer.Option(metavar="RATE", help="At most this fast, like 10/s.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most this many.")]
After = Annotated[
    str | None,
    typer.Option("--after", metavar="ID", callback=_check_id, help="Continue after this job."),
]


@dataclass(frozen=True, kw_only=True)
class Target:
    """The options that say which store is meant."""

    app: App = None
    url: Url = None
    space: InSpace = None

    def choose(self) -> Windlass:
        return app_target.choose(self.app, self.url, self.space)

    def visit(self, work: Callable[[Windlass], Coroutine[Any, Any, T]]) -> T:
        """Run an action on the store, which must exist already, and close it."""
        return app_target.visit(self.app, self.url, work, space=self.space)


@dataclass(frozen=True, kw_only=True)
class ActingTarget(Target):
    """The same for commands that change something: their reason is recorded."""

    reason: Reason = ""

    def visit(self, work: Callable[[Windlass], Coroutine[Any, Any, T]]) -> T:
        """Run an action on the store, which must exist already, and close it."""
        return app_target.visit(self.app, self.url, work, space=self.space, reason=self.reason)


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """The options that select jobs."""

    find: Find = None
    kind: OfKind = None
    queue: OfQueue = None
    group: OfGroup = None
    key: OfKey = None
    error: OfError = None
    older_than: OlderThan = None
    newer_than: NewerThan = None

    def where(self, *, states: list[State] | None = None, worker: str | None = None) -> Where:
        """Return the given conditions for jobs, without those that were not given."""
        given = {
            "states": tuple(states or ()) or None,
            "kind": self.kind,
            "queue": self.queue,
            "key": self.key,
            "worker": worker,
            "error": self.error,
            "fingerprint": None if self.group is None else _fingerprint(self.group),
            "older_than": span(self.older_than),
            "newer_than": span(self.newer_than),
            "search": self.find,
        }
        return cast("Where", {name: value for name, value in given.items() if value is not None})


def _fingerprint(group: str) -> str:
    if group == "-":
        return ""  # As listings show deaths without an error.
    if not is_fingerprint(group):
        raise typer.BadParameter(
            f"must be a group as `windlass dead groups` lists it, got {group!r}; --find "
            f"{shlex.quote(f'error:{group}')} takes the beginning of one, and other words",
            param_hint="--group",
        )
    return group


@dataclass(frozen=True, kw_only=True)
class Bulk(Conditions):
    """The options of commands that move many jobs."""

    everything: All = False
    limit: AtMost = None
    rate: Rate = None
    background: Background = False
    dry_run: DryRun = False

    @property
    def confirmed(self) -> bool:
        """Whether the jobs are moved without a question."""
        return True


@dataclass(frozen=True, kw_only=True)
class ConfirmedBulk(Bulk):
    """The same for commands that ask before they move jobs."""

    yes: Yes = False

    @property
    def confirmed(self) -> bool:
        """Whether the jobs are moved without a question."""
        return self.yes


class Commands(typer.Typer):
    """A group of commands, whose parameters may be a `Target` and `Conditions`."""

    def __init__(self, help_: str) -> None:
        super().__init__(no_args_is_help=True, help=help_)

    def command(  # type: ignore[override]
        self, name: str | None = None, **settings: Any
    ) -> Callable[[Callable[..., None]], Callable[..., None]]:
        add = super().command(name, **settings)
        return lambda function: add(spread(function))


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the options of a `Target` and `Conditions` in place of those."""
    hints = get_type_hints(command, include_extras=True)
    groups = {
        name: hint
        for name, hint in hints.items()
        if isinstance(hint, type) and issubclass(hint, (Target, Conditions))
    }
    parameters: list[Parameter] = []
    for each in signature(command).parameters.values():
        if each.name in groups:
            parameters += signature(groups[each.name], eval_str=True).parameters.values()
        else:
            parameters.append(each.replace(annotation=hints[each.name]))

    @wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            own = {each.name: given.pop(each.name) for each in fields(group)}
            given[name] = group(**own)
        command(**given)

    run.__annotations__ = {each.name: each.annotation for each in parameters}
    run.__signature__ = signature(command).replace(parameters=parameters)  # type: ignore[attr-defined]
    return run


def example(*lines: str) -> str:
    """Return the epilog of a command's help: lines that can be typed, and are not wrapped."""
    return "\n  ".join(["\b\nExample:", *lines])


@contextmanager
def usage() -> Iterator[None]:
    """Turn a wrong value into a wrong usage: exit code 2, and the reason."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error


def span(text: str | None) -> Duration | None:
    """Read a duration: `90`, `30s`, `1h30m`. The app checks it."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return text


def instant(text: str | None) -> datetime | None:
    """Read an instant like `2026-03-01T09:00:00+01:00`.

    Raises:
        ValueError: it is none, or has no time zone.
    """
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"a time must be in ISO format, got {text!r}; write it like 2026-03-01T09:00:00+01:00"
        ) from None
    if moment.tzinfo is None:
        full = text if len(text) > len("2026-03-01") else f"{text}T00:00"
        raise ValueError(f"{text!r} has no time zone; add one: {full}Z, or {full}+01:00")
    return moment


def span_or_instant(text: str | None) -> Duration | datetime | None:
    """Read a duration or an instant; only an instant has a date in it."""
    return instant(text) if text is not None and "-" in text[1:] else span(text)
