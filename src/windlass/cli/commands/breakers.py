"""Owns `windlass breakers`: which circuit breakers are open, why, and how to force them."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from windlass.app import Windlass
from windlass.cli import options
from windlass.cli.output import console as show
from windlass.cli.output.tables import Column, Listing
from windlass.core import documents as facts
from windlass.core.errors import ConfigError
from windlass.core.policies.breaker_record import BreakerState, BreakerStatus
from windlass.core.values.durations import brief
from windlass.core.values.text import inert

breakers = options.Commands("Show circuit breakers, open and close them.")
Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]
_STYLES = {
    BreakerState.CLOSED: "green",
    BreakerState.OPEN: "red",
    BreakerState.HALF_OPEN: "yellow",
}


@breakers.command("list", epilog=options.example("windlass breakers list --json"))
def list_breakers(*, target: options.Target, as_json: options.AsJson = False) -> None:
    """List breakers: whether they are open, until when, and why."""

    async def work(chosen: Windlass) -> tuple[list[BreakerStatus], datetime]:
        return await chosen.control.abreakers(), (await chosen.store.sweep()).now

    known, now = target.visit(work)
    if as_json:
        show.document({"breakers": [facts.breaker_facts(each, history=False) for each in known]})
        return
    if not known:
        show.note("no breakers yet; a worker registers those of its app when it starts")
        return
    listing = Listing(
        Column("breaker"),
        Column("state"),
        Column("failures", number=True),
        Column("for", rank=2),
        Column("kinds", rank=1),
        Column("why", stretch=True),
    )
    for each in known:
        listing.add(
            show.cell(each.name),
            _state(each),
            show.count(each.failures),
            show.cell(_time_left(each, now)),
            show.cell(", ".join(each.kinds)),
            show.cell(each.why),
        )
    listing.print(show.stdout())


@breakers.command("show", epilog=options.example("windlass breakers show stripe"))
def show_breaker(name: Name, *, target: options.Target, as_json: options.AsJson = False) -> None:
    """Show a breaker with its history: when it opened and closed, why, and by whom."""

    async def work(chosen: Windlass) -> tuple[BreakerStatus, datetime]:
        return await _find(chosen, name), (await chosen.store.sweep()).now

    status, now = target.visit(work)
    if as_json:
        show.document(facts.breaker_facts(status))
    else:
        show.stdout().print(_portrait(status, now))


def _add_command(
    word: str, act: Callable[[Windlass, str], Awaitable[BreakerStatus]], help_: str
) -> None:
    def force(name: Name, *, target: options.ActingTarget, as_json: options.AsJson = False) -> None:
        _force(target, name, act, as_json=as_json)

    epilog = options.example(f"windlass breakers {word} stripe")
    breakers.command(word, help=help_, epilog=epilog)(force)


_add_command(
    "open",
    lambda app, name: app.control.aopen_breaker(name),
    "Pin a breaker open: no job of its kinds starts until `breakers auto`.",
)
_add_command(
    "close",
    lambda app, name: app.control.aclose_breaker(name),
    "Pin a breaker closed until `breakers auto`: it no longer protects anything.",
)
_add_command(
    "probe",
    lambda app, name: app.control.aprobe_breaker(name),
    "Let an open breaker try a few jobs now; it closes if they succeed.",
)
_add_command(
    "auto",
    lambda app, name: app.control.areset_breaker(name),
    "Return a breaker to automatic; one that was pinned open starts with probes.",
)


async def _find(app: Windlass, name: str) -> BreakerStatus:
    known = {each.name: each for each in await app.control.abreakers()}
    if name not in known:
        raise ConfigError(
            f"there is no breaker {name!r}; known breakers: {', '.join(known) or 'none'}"
        )
    return known[name]


def _force(
    target: options.Target,
    name: str,
    act: Callable[[Windlass, str], Awaitable[BreakerStatus]],
    *,
    as_json: bool,
) -> None:
    async def work(chosen: Windlass) -> tuple[BreakerStatus, bool]:
        before = {each.name: each.changes for each in await chosen.control.abreakers()}
        after = await act(chosen, name)
        return after, after.changes != before.get(name, 0)

    status, changed = target.visit(work)
    if as_json:
        show.document({**facts.breaker_facts(status, history=False), "changed": changed})
    else:
        now = "is" if changed else "was already"
        by = "automatic" if status.forced is None else f"pinned {status.forced} by hand"
        show.say(f"breaker {name} {now} {by}, and {status.state.value}")
        if status.forced is not None:
            effect = (
                "it stays closed whatever fails"
                if status.forced == "closed"
                else "none of its jobs start"
            )
            back = f"windlass breakers auto {shlex.quote(name)}"
            show.note(f"{effect} until it is returned to automatic: {back}")


def _state(status: BreakerStatus) -> Text:
    forced = "" if status.forced is None else " (by hand)"
    return Text(f"{status.state.value}{forced}", _STYLES[status.state])


def _time_left(status: BreakerStatus, now: datetime) -> str:
    if status.until is None:
        return ""
    return brief(status.until - now) if status.until > now else "a moment"


def _portrait(status: BreakerStatus, now: datetime) -> Group:
    grid = show.pairs()
    rows = {
        "why": status.why,
        "failures": f"{status.failures} in a row",
        "opened": show.moment(status.opened_at, now),
        "cooldown": "" if status.until is None else f"over {show.ago(status.until, now)}",
        "probes": ", ".join(f"{count} by {who}" for who, count in status.probes.items()),
        "kinds": ", ".join(status.kinds),
        "changes": str(status.changes),
    }
    for name, value in rows.items():
        if value:
            grid.add_row(name, Text(inert(value)))
    head = Text.assemble(("breaker ", "dim"), (inert(status.name), "bold"), "  ", _state(status))
    parts: list[RenderableType] = [head, Text(), grid]
    if status.history:
        parts += [Text(), Text("changes, newest first", "bold"), _history(status, now)]
    return Group(*parts)


def _history(status: BreakerStatus, now: datetime) -> Text:
    return Text("\n").join(
        Text.assemble(
            f"  {show.moment(change.at, now)}  {change.old.value} → ",
            (change.new.value, _STYLES[change.new]),
            inert(f": {change.why}"),
            (inert(f" · {change.by}"), "dim"),
        )
        for change in reversed(status.history)
    )
