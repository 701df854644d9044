"""Owns `windlass audit`: listing what operators did."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from windlass.app import Windlass
from windlass.cli import options
from windlass.cli.output import console as show
from windlass.cli.output.tables import Column, Listing
from windlass.core.audit import AuditEntry, AuditPage, audit_facts

audit = options.Commands("List what operators did.")


@audit.command(
    "list",
    epilog=options.example(
        "windlass audit list --since 1d", "windlass audit list --by ada --subject queue:mail"
    ),
)
def list_entries(
    *,
    since: Annotated[
        str | None,
        typer.Option(metavar="1d", help="Only since this long ago, or since this time."),
    ] = None,
    by: Annotated[str | None, typer.Option(help="Only by this operator.")] = None,
    action: Annotated[str | None, typer.Option(help="Only this action, like cancel.")] = None,
    subject: Annotated[
        str | None, typer.Option(help="Only about this, like queue:mail, or queue.")
    ] = None,
    job: Annotated[
        str | None, typer.Option(metavar="ID", help="Only about the job with this id.")
    ] = None,
    limit: options.Limit = 50,
    after: Annotated[
        str | None, typer.Option(metavar="ENTRY", help="Continue after this entry.")
    ] = None,
    target: options.Target,
    as_json: options.AsJson = False,
) -> None:
    """List what operators did, the newest first: who, how, what, and why."""
    with options.usage():
        start = options.span_or_instant(since)

    async def work(chosen: Windlass) -> tuple[AuditPage, datetime]:
        job_id = None if job is None else await chosen.jobs.ajob_id(job)
        with options.usage():
            page = await chosen.control.aaudit(
                since=start,
                by=by,
                action=action,
                subject=subject,
                job=job_id,
                limit=limit,
                after=after,
            )
        return page, (await chosen.store.ringing(1)).now

    page, now = target.visit(work)
    if as_json:
        show.document(audit_facts(page))
        return
    if page.entries:
        _list(page.entries, now)
    _note_rest(page, now)


def _list(entries: tuple[AuditEntry, ...], now: datetime) -> None:
    listing = Listing(
        Column("when"),
        Column("by"),
        Column("via", rank=2),
        Column("action"),
        Column("subject"),
        Column("jobs", number=True),
        Column("detail", rank=1),
        Column("reason", stretch=True),
    )
    for entry in entries:
        listing.add(
            show.cell(show.ago(entry.at, now), "dim"),
            show.cell(entry.by),
            show.cell(entry.via, "dim"),
            show.cell(entry.action),
            show.cell(entry.subject),
            show.cell(f"{entry.count:,}" if entry.count else ""),
            show.cell(entry.detail, "dim"),
            show.cell(entry.reason),
        )
    listing.print(show.stdout())


def _note_rest(page: AuditPage, now: datetime) -> None:
    if page.searched_to is not None:
        back = show.moment(page.searched_to, now)
        show.note(f"searched back to {back}; continue with: --after {page.after}")
    elif not page.entries:
        show.note("no entries")
    elif page.after is not None:
        show.note(f"there are more: --after {page.after}")
