"""Owns `windlass deploys`: marking and listing deploys."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from windlass.app import Windlass
from windlass.cli import options
from windlass.cli.output import console as show
from windlass.cli.output.tables import Column, Listing
from windlass.core.deploys import DeployMark, mark_facts

deploys = options.Commands("Mark deploys, to see which errors are new since one.")


@deploys.command("mark", epilog=options.example("windlass deploys mark v1.2.3"))
def mark_deploy(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A version, or a commit.", show_default=False)
    ],
    *,
    target: options.ActingTarget,
    as_json: options.AsJson = False,
) -> None:
    """Record that a release is deployed now. The last 50 marks are kept."""

    async def work(chosen: Windlass) -> DeployMark:
        with options.usage():
            return await chosen.control.amark_deploy(name)

    mark = target.visit(work)
    if as_json:
        show.document(mark_facts(mark))
    else:
        show.say(f"deploy {mark.name} is marked")


@deploys.command("list", epilog=options.example("windlass deploys list --json"))
def list_deploys(*, target: options.Target, as_json: options.AsJson = False) -> None:
    """List the deploys that were marked, the newest first."""

    async def work(chosen: Windlass) -> tuple[list[DeployMark], datetime]:
        return await chosen.control.adeploys(), (await chosen.store.sweep()).now

    marks, now = target.visit(work)
    if as_json:
        show.document({"deploys": [mark_facts(each) for each in marks]})
        return
    if not marks:
        show.note("no deploy is marked; mark one: windlass deploys mark v1.2.3")
        return
    listing = Listing(Column("deploy"), Column("when"), Column("by", stretch=True))
    for mark in marks:
        listing.add(
            show.cell(mark.name),
            show.cell(show.ago(mark.at, now), "dim"),
            show.cell(mark.by, "dim"),
        )
    listing.print(show.stdout())
