"""Owns `windlass doctor`: prints the diagnosis."""

from __future__ import annotations

import asyncio
import platform
import sqlite3
from contextlib import suppress
from typing import Annotated

import typer
from rich.text import Text

from windlass.app import Windlass
from windlass.app.doctor import advice
from windlass.app.doctor import report as diagnosis
from windlass.app.doctor.report import Report
from windlass.app.registration.importing import load_imports
from windlass.cli import app_target as target
from windlass.cli import options
from windlass.cli.output import console as show
from windlass.cli.output.tables import Column, Listing
from windlass.core.errors import WindlassError
from windlass.core.jobs.queries import Finding
from windlass.core.values.text import inert
from windlass.version import __version__

App = Annotated[
    str | None,
    typer.Argument(metavar="MODULE:ATTR", show_default=False, help="The app to check."),
]

EXAMPLES = ("windlass doctor shop.jobs:app",)


def doctor(
    app: App = None,
    *,
    app_option: Annotated[str | None, typer.Option("--app", hidden=True)] = None,
    url: options.Url = None,
    space: options.InSpace = None,
    as_json: options.AsJson = False,
) -> None:
    """Find problems, and how to fix them.

    The verdict comes first, then its causes, the reachable services, and the settings with their
    sources. Changes nothing. The exit code is 1 if there is a problem.
    """
    report = Report()
    reference = app_option or app or target.reference_in_force()
    report.facts["windlass"] = (
        f"{__version__} on Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    )
    chosen = _load(reference, url, space, report)
    if chosen is not None:
        asyncio.run(_examine(chosen, report))
    if as_json:
        show.document(report.document())
    else:
        _print(report)
    if report.problems:
        raise typer.Exit(1)


def _load(
    reference: str | None, url: str | None, space: str | None, report: Report
) -> Windlass | None:
    report.app = reference
    try:
        app = target.choose(reference, url, space)
        load_imports(app.settings.imports)
    except WindlassError as error:
        report.problems.append(advice.of_load(error))
        return None
    diagnosis.examine_settings(app, report)
    return app


async def _examine(app: Windlass, report: Report) -> None:
    try:
        await diagnosis.examine_store(app, report)
    finally:
        # With a URL that names no store there is nothing to close.
        with suppress(WindlassError):
            await app.aclose()


def _print(report: Report) -> None:
    # The verdict first, then its causes, and last the details.
    console = show.stdout()
    console.print(_verdict(report))
    for finding in report.problems:
        _print_finding("wrong", "bold red", finding)
    for finding in report.warnings:
        _print_finding("warn", "yellow", finding)
    for finding in report.notes:
        _print_finding("note", "dim", finding)
    console.print()
    grid = show.pairs()
    for name, value in report.facts.items():
        grid.add_row(name, Text(inert(value)))
    console.print(grid)
    if report.settings:
        console.print()
        listing = Listing(Column("setting"), Column("value", stretch=True), Column("from"))
        for each in report.settings:
            is_default = each.source == "default"
            style = "dim" if is_default else ""
            listing.add(show.cell(each.name), show.cell(each.value), show.cell(each.source, style))
        listing.print(console)


def _verdict(report: Report) -> Text:
    counts = {
        "problem": len(report.problems),
        "warning": len(report.warnings),
        "note": len(report.notes),
    }
    parts = [show.plural(count, name) for name, count in counts.items() if count]
    if report.problems:
        return Text(", ".join(parts), "bold red")
    if report.warnings:
        return Text(", ".join(parts), "yellow")
    return Text(", ".join(["all is well", *parts]), "green")


def _print_finding(label: str, style: str, finding: Finding) -> None:
    show.say(Text.assemble((f"{label:<6}", style), inert(finding.problem)))
    show.say(Text.assemble("      ", ("→ ", "dim"), inert(finding.remedy)))
