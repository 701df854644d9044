"""Owns `windlass events`: sending an event to the jobs that wait for it, and listing them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated

import typer
from msgspec.structs import replace
from rich.text import Text

from windlass.app import Windlass
from windlass.app.masking import redaction_of
from windlass.cli import options
from windlass.cli.commands.enqueue import read_json
from windlass.cli.output import console as show
from windlass.cli.output.tables import Column, Listing
from windlass.core.values.names import check_name
from windlass.core.workflows.events import Event, events_of, topic_of

events = options.Commands("Send events to waiting jobs, and show them.")
Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]


@events.command("send", epilog=options.example('windlass events send paid:42 \'{"by": "card"}\''))
def send(
    name: Name,
    payload: Annotated[
        str, typer.Argument(metavar="PAYLOAD", help="The event's data as JSON; - reads stdin.")
    ] = "null",
    *,
    target: options.Target,
    as_json: options.AsJson = False,
) -> None:
    """Send an event to all jobs that wait for it, or will within a week."""
    with options.usage():
        check_name("event", name)
        value = read_json(payload)

    async def work(chosen: Windlass) -> None:
        await chosen.asend_event(name, value)

    target.visit(work)
    if as_json:
        show.document({"event": name, "sent": True})
    else:
        show.say(f"event {name} sent")


@events.command("show", epilog=options.example("windlass events show paid:42"))
def show_events(name: Name, *, target: options.Target, as_json: options.AsJson = False) -> None:
    """List recent events of this name that a worker has read."""

    async def work(chosen: Windlass) -> list[Event]:
        topic = topic_of(name)
        recorded = events_of((await chosen.store.records(topic)).get(topic))
        redaction = redaction_of(chosen)
        return [replace(event, payload=redaction.value(event.payload)) for event in recorded]

    found = target.visit(work)
    if as_json:
        sent = [
            {"id": str(event.id), "at": event.at.isoformat(), "payload": event.payload}
            for event in found
        ]
        show.document({"event": name, "sent": sent})
        return
    if not found:
        show.note(
            f"no event {name} is recorded; if it was just sent, a worker has yet to record it"
        )
        return
    listing = Listing(Column("sent"), Column("id"), Column("payload"))
    for event in found:
        listing.add(
            Text(show.moment(event.at, datetime.now(UTC))),
            show.cell(event.id),
            show.cell(json.dumps(event.payload, ensure_ascii=False)),
        )
    listing.print(show.stdout())
