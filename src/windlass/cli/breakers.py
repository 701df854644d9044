"""Owns `windlass breakers`: which circuit breakers are open, why, and how to force them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from windlass.app import Windlass
from windlass.cli import facts, options, show, target
from windlass.cli.listing import Column, Listing
from windlass.core.breaker_record import BreakerState, BreakerStatus
from windlass.core.errors import ConfigError
from windlass.core.text import inert

breakers = typer.Typer(no_args_is_help=True, help="Look at circuit breakers, open and close them.")
Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]
_STYLES = {
    BreakerState.CLOSED: "green",
    BreakerState.OPEN: "red",
    BreakerState.HALF_OPEN: "yellow",
}


@breakers.command("list", epilog=options.example("windlass breakers list --json"))
def list_breakers(
    *, app: options.App = None, url: options.Url = None, as_json: options.AsJson = False
) -> None:
    """List breakers: whether they are open, until when, and why."""

    async def work(chosen: Windlass) -> tuple[list[BreakerStatus], datetime]:
        return await chosen.control.breakers(), (await chosen.store.sweep()).now

    known, now = target.visit(app, url, work)
    if as_json:
        show.document({"breakers": [facts.breaker_facts(each, history=False) for each in known]})
        return
    if not known:
        show.note("no breaker is known here; a worker makes those of its app known")
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
def show_breaker(
    name: Name,
    *,
    app: options.App = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """Show a breaker with its history: when it opened and closed, why, and by whom."""

    async def work(chosen: Windlass) -> tuple[BreakerStatus, datetime]:
        return await _find(chosen, name), (await chosen.store.sweep()).now

    status, now = target.visit(app, url, work)
    if as_json:
        show.document(facts.breaker_facts(status))
    else:
        show.stdout().print(_portrait(status, now))


def _lever(word: str, act: Callable[[Windlass, str], Awaitable[BreakerStatus]], told: str) -> None:
    """Add a command that forces a breaker, or ends that."""

    def force(
        name: Name,
        *,
        app: options.App = None,
        url: options.Url = None,
        as_json: options.AsJson = False,
    ) -> None:
        _force(app, url, name, act, as_json=as_json)

    epilog = options.example(f"windlass breakers {word} stripe")
    breakers.command(word, help=told, epilog=epilog)(force)


_lever(
    "open",
    lambda app, name: app.control.open_breaker(name),
    "Keep a breaker open: no job of its kinds starts until you say otherwise.",
)
_lever(
    "close",
    lambda app, name: app.control.close_breaker(name),
    "Keep a breaker closed, whatever fails, until you say otherwise.",
)
_lever(
    "auto",
    lambda app, name: app.control.reset_breaker(name),
    "Let a breaker go by itself again; one that was kept open is tried with probes first.",
)


async def _find(app: Windlass, name: str) -> BreakerStatus:
    known = {each.name: each for each in await app.control.breakers()}
    if name not in known:
        raise ConfigError(f"there is no breaker {name!r}; there are: {', '.join(known) or 'none'}")
    return known[name]


def _force(
    app: str | None,
    url: str | None,
    name: str,
    act: Callable[[Windlass, str], Awaitable[BreakerStatus]],
    *,
    as_json: bool,
) -> None:
    async def work(chosen: Windlass) -> tuple[BreakerStatus, bool]:
        before = {each.name: each.changes for each in await chosen.control.breakers()}
        after = await act(chosen, name)
        return after, after.changes != before.get(name, 0)

    status, changed = target.visit(app, url, work)
    if as_json:
        show.document({**facts.breaker_facts(status, history=False), "changed": changed})
    else:
        now = "is" if changed else "was already"
        by = "automatic" if status.forced is None else f"kept {status.forced} by hand"
        show.say(f"breaker {name} {now} {by}, and {status.state.value}")


def _state(status: BreakerStatus) -> Text:
    forced = "" if status.forced is None else " (by hand)"
    return Text(f"{status.state.value}{forced}", _STYLES[status.state])


def _time_left(status: BreakerStatus, now: datetime) -> str:
    if status.until is None:
        return ""
    return show.short(status.until - now) if status.until > now else "a moment"


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
        parts += [Text(), Text("changes, the latest first", "bold"), _history(status, now)]
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


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    cli.add_typer(breakers, name="breakers")
