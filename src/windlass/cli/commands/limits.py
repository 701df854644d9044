"""Owns `windlass limits`: listing limits, and changing them while workers run."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from windlass.app import Windlass
from windlass.cli import options
from windlass.cli.output import console as show
from windlass.cli.output.tables import Column, Listing
from windlass.core import documents as facts
from windlass.core.policies.limit_usage import LimitState

limits = options.Commands("Show limits and change them live.")
Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]
Rate = Annotated[
    str | None, typer.Option("--rate", metavar="N/s", help="Starts per time: 10/s, 100/m.")
]
Burst = Annotated[
    int | None, typer.Option("--burst", help="Number of jobs that may start at once.")
]
Concurrency = Annotated[
    int | None, typer.Option("--concurrency", help="Number of jobs that may run at a time.")
]


@limits.command("list", epilog=options.example("windlass limits list --app shop:app"))
def list_limits(*, target: options.Target, as_json: options.AsJson = False) -> None:
    """List limits: their values, whether they were changed, and how much workers hold.

    Without --app only changed limits are known, and those that live workers report.
    """
    found = target.visit(_look)
    if as_json:
        show.document({"limits": [facts.limit_facts(each) for each in found]})
        return
    if not found:
        show.note(
            "no limit was changed, and no live worker reports one; show those of an app with "
            "--app MODULE:ATTR"
        )
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
    target: options.ActingTarget,
    as_json: options.AsJson = False,
) -> None:
    """Change a limit for all workers, without a restart.

    NAME is kind:KIND, queue:QUEUE, or the name of a shared limit. A lower limit takes effect as
    running jobs end; `limits reset` brings back what the code says.
    """

    async def work(chosen: Windlass) -> LimitState:
        with options.usage():
            await chosen.control.aset_limit(name, rate=rate, burst=burst, concurrency=concurrency)
        return next(each for each in await _look(chosen) if each.name == name)

    changed = target.visit(work)
    if as_json:
        show.document(facts.limit_facts(changed))
    else:
        show.say(f"limit {name} is {_described(changed)}")
        if not changed.kinds:
            show.note("no handler of a live worker uses it, so it limits nothing as yet")


@limits.command("reset", epilog=options.example("windlass limits reset kind:crawl"))
def reset_limit(
    name: Name, *, target: options.ActingTarget, as_json: options.AsJson = False
) -> None:
    """Reset a limit to its value in the code."""

    async def work(chosen: Windlass) -> bool:
        return await chosen.control.areset_limit(name)

    was_changed = target.visit(work)
    if as_json:
        show.document({"limit": name, "changed": was_changed})
    else:
        show.say(f"limit {name} {'reset' if was_changed else 'was not changed'}")


async def _look(app: Windlass) -> list[LimitState]:
    return await app.control.alimits()


def _described(limit: LimitState) -> str:
    parts = [
        None if limit.rate is None else f"rate {limit.rate}",
        None if limit.burst is None else f"burst {limit.burst}",
        None if limit.concurrency is None else f"concurrency {limit.concurrency}",
    ]
    return ", ".join(part for part in parts if part)
