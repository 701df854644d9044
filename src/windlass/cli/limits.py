"""Owns `windlass limits`: what is limited, and changing that while workers run."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from windlass.app import Windlass
from windlass.cli import facts, options, show, target
from windlass.cli.listing import Column, Listing
from windlass.core.usage import LimitState

limits = typer.Typer(no_args_is_help=True, help="Look at limits, and change them live.")
Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]
Rate = Annotated[str | None, typer.Option("--rate", metavar="N/s", help="Starts: 10/s, 100/m.")]
Burst = Annotated[int | None, typer.Option("--burst", help="How many may start at once.")]
Concurrency = Annotated[
    int | None, typer.Option("--concurrency", help="How many may run at a time.")
]


@limits.command("list", epilog=options.example("windlass limits list --app shop:app"))
def list_limits(
    *, app: options.App = None, url: options.Url = None, as_json: options.AsJson = False
) -> None:
    """List limits: what they are, whether that was changed, and what workers have of them.

    Without --app only those are known that were changed.
    """
    found = target.visit(app, url, _look)
    if as_json:
        show.document({"limits": [facts.limit_facts(each) for each in found]})
        return
    if not found:
        show.note("no limit is known here; those of an app are shown with --app MODULE:ATTR")
        return
    listing = Listing(
        Column("limit"),
        Column("per"),
        Column("rate"),
        Column("burst", number=True, rank=1),
        Column("concurrency", number=True),
        Column(""),
        Column("held", number=True),
        Column("used", number=True, rank=1),
    )
    for each in found:
        listing.add(
            show.cell(each.name),
            Text("key" if each.keyed else ""),
            Text(each.rate or ""),
            Text("" if each.burst is None else str(each.burst)),
            Text("" if each.concurrency is None else str(each.concurrency)),
            Text("changed" if each.changed else "", "yellow"),
            Text(str(each.held)),
            Text(str(each.used)),
        )
    listing.print(show.stdout())


@limits.command("set", epilog=options.example("windlass limits set kind:crawl --rate 20/s"))
def set_limit(
    name: Name,
    *,
    rate: Rate = None,
    burst: Burst = None,
    concurrency: Concurrency = None,
    app: options.App = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """Change a limit for all workers, without a restart.

    NAME is kind:KIND, queue:QUEUE, or the name of a resource. A lower limit takes effect as running
    jobs end; `limits reset` brings back what the code says.
    """

    async def work(chosen: Windlass) -> LimitState:
        with options.usage():
            await chosen.control.set_limit(name, rate=rate, burst=burst, concurrency=concurrency)
        return next(each for each in await _look(chosen) if each.name == name)

    changed = target.visit(app, url, work)
    if as_json:
        show.document(facts.limit_facts(changed))
    else:
        show.say(f"limit {name} is {_told(changed)}")


@limits.command("reset", epilog=options.example("windlass limits reset kind:crawl"))
def reset_limit(
    name: Name,
    *,
    app: options.App = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """Let a limit be what the code says again."""

    async def work(chosen: Windlass) -> bool:
        return await chosen.control.reset_limit(name)

    was_changed = target.visit(app, url, work)
    if as_json:
        show.document({"limit": name, "changed": was_changed})
    else:
        show.say(f"limit {name} {'reset' if was_changed else 'was not changed'}")


async def _look(app: Windlass) -> list[LimitState]:
    return await app.control.limits()


def _told(limit: LimitState) -> str:
    parts = [
        None if limit.rate is None else f"rate {limit.rate}",
        None if limit.burst is None else f"burst {limit.burst}",
        None if limit.concurrency is None else f"concurrency {limit.concurrency}",
    ]
    return ", ".join(part for part in parts if part)


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    cli.add_typer(limits, name="limits")
