"""Owns `windlass doctor`: prints the diagnosis."""

from __future__ import annotations

import asyncio
import platform
import sqlite3
from typing import Annotated

import typer
from rich.text import Text

from windlass.cli import diagnosis, options, show, target
from windlass.cli.diagnosis import Report
from windlass.cli.listing import Column, Listing
from windlass.core.job import Finding
from windlass.core.text import inert
from windlass.release import __version__

App = Annotated[
    str | None,
    typer.Argument(metavar="MODULE:ATTR", show_default=False, help="The app to look at."),
]


def doctor(
    app: App = None,
    *,
    app_option: Annotated[str | None, typer.Option("--app", hidden=True)] = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """Find what is wrong, and how to mend it.

    Says what is configured and where each setting came from, and what can be reached. Changes
    nothing. The exit code is 1 if something is wrong.
    """
    report = Report()
    reference = app_option or app or target.reference_in_force()
    report.facts["windlass"] = (
        f"{__version__} on Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    )
    chosen = diagnosis.load(reference, url, report)
    if chosen is not None:
        asyncio.run(diagnosis.examine_store(chosen, report))
    if as_json:
        _document(report)
    else:
        _print(report)
    if report.problems:
        raise typer.Exit(1)


def _document(report: Report) -> None:
    show.document(
        {
            "ok": not report.problems,
            "app": report.app,
            "settings": {
                each.name: {"value": each.value, "source": each.source} for each in report.settings
            },
            "facts": report.facts,
            "problems": [_facts(finding) for finding in report.problems],
            "notes": [_facts(finding) for finding in report.notes],
        }
    )


def _facts(finding: Finding) -> dict[str, str]:
    return {"problem": finding.problem, "remedy": finding.remedy}


def _print(report: Report) -> None:
    console = show.stdout()
    if report.settings:
        listing = Listing(Column("setting"), Column("value", stretch=True), Column("from"))
        for each in report.settings:
            is_default = each.source == "default"
            style = "dim" if is_default else ""
            listing.add(show.cell(each.name), show.cell(each.value), show.cell(each.source, style))
        listing.print(console)
        console.print()
    grid = show.pairs()
    for name, value in report.facts.items():
        grid.add_row(name, Text(inert(value)))
    console.print(grid)
    console.print()
    for finding in report.notes:
        _print_finding("note", "yellow", finding)
    for finding in report.problems:
        _print_finding("wrong", "bold red", finding)
    if not report.problems:
        console.print(Text("all is well", "green"))


def _print_finding(label: str, style: str, finding: Finding) -> None:
    show.say(Text.assemble((f"{label:<6}", style), inert(finding.problem)))
    show.say(Text.assemble("      ", ("→ ", "dim"), inert(finding.remedy)))


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command(epilog=options.example("windlass doctor shop.jobs:app"))(doctor)
