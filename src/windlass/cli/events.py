"""Owns `windlass events`: sending one to the jobs that wait for it, and looking at those sent."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.text import Text

from windlass.app import Windlass
from windlass.cli import options, show, target
from windlass.cli.enqueue import read_json
from windlass.cli.listing import Column, Listing
from windlass.core.events import Event, events_of, topic_of
from windlass.core.names import check_name

events = typer.Typer(no_args_is_help=True, help="Send events to jobs that wait, and look at them.")
Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]


@events.command("send", epilog=options.example('windlass events send paid:42 \'{"by": "card"}\''))
def send(
    name: Name,
    payload: Annotated[
        str, typer.Argument(metavar="PAYLOAD", help="What it brings, as JSON; - reads stdin.")
    ] = "null",
    *,
    app: options.App = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """Send an event to all jobs that wait for it, or will within a week."""
    with options.usage():
        check_name("event", name)
        value = read_json(payload)

    async def work(chosen: Windlass) -> None:
        await chosen.asend_event(name, value)

    target.visit(app, url, work)
    if as_json:
        show.document({"event": name, "sent": True})
    else:
        show.say(f"event {name} sent")


@events.command("show", epilog=options.example("windlass events show paid:42"))
def show_events(
    name: Name,
    *,
    app: options.App = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """List what was sent by this name lately, as far as a worker has heard of it."""

    async def work(chosen: Windlass) -> tuple[Event, ...]:
        topic = topic_of(name)
        return events_of((await chosen.store.records(topic)).get(topic))

    found = target.visit(app, url, work)
    if as_json:
        sent = [
            {"id": str(event.id), "at": event.at.isoformat(), "payload": event.payload}
            for event in found
        ]
        show.document({"event": name, "sent": sent})
        return
    if not found:
        show.note(f"no event {name} is known; if it was sent just now, a worker has to hear it")
        return
    listing = Listing(Column("sent"), Column("id"))
    for event in found:
        listing.add(Text(show.moment(event.at, datetime.now(UTC))), show.cell(event.id))
    listing.print(show.stdout())


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    cli.add_typer(events, name="events")
