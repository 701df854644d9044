"""Owns `windlass check`: prints what the code of an app does not serve of a store."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer
from rich.text import Text

from windlass.app import Windlass
from windlass.app.deploy_check.check import check_deploy
from windlass.app.deploy_check.report import CheckFinding, CheckReport
from windlass.app.deploy_check.sample import LIMIT
from windlass.cli import app_target, options
from windlass.cli.output import console as show
from windlass.cli.processes import worker_flags
from windlass.core.values.text import inert

App = Annotated[
    str | None,
    typer.Argument(
        metavar="MODULE:ATTR",
        envvar=app_target.VARIABLE,
        show_default=False,
        help="The app with the new code.",
    ),
]
Against = Annotated[
    str | None,
    typer.Option(
        "--against",
        "--url",
        metavar="URL",
        help="The store to check it against; default: the app's own.",
    ),
]
Sampled = Annotated[
    int, typer.Option("--limit", min=1, help="About how many unfinished jobs are looked at.")
]

EXAMPLES = (
    'windlass check shop:app --against "$PRODUCTION_URL"',
    "windlass check shop:app --all --json",
)


def check(
    app: App = None,
    *,
    app_option: worker_flags.AppOption = None,
    against: Against = None,
    space: options.InSpace = None,
    queues: worker_flags.Queues = None,
    exclude: worker_flags.Exclude = None,
    limit: Sampled = LIMIT,
    everything: Annotated[
        bool, typer.Option("--all", help="Look at all unfinished jobs, however many.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Check before a deploy that new code serves the jobs that the store holds.

    Finds payloads that no longer decode, and kinds, queues, schedules, limits, encryption keys,
    steps and schema versions that the new code does not serve. Changes nothing. The exit code is 1
    if there is a finding.
    """
    reference = app_option or app or app_target.reference_in_force()
    if reference is None:
        raise typer.BadParameter("name the app with the new code, like shop.jobs:app")
    chosen = app_target.choose(reference, against, space)
    chosen.configure(queues=queues, exclude=exclude)
    app_target.refuse_private(chosen.store)
    report = asyncio.run(_check(chosen, None if everything else limit))
    if as_json:
        show.document({"app": reference} | report.document())
    else:
        _print(report)
    if report.findings:
        raise typer.Exit(1)


async def _check(app: Windlass, limit: int | None) -> CheckReport:
    try:
        await app_target.require(app.store)
        return await check_deploy(app, limit=limit)
    finally:
        await app.aclose()


def _print(report: CheckReport) -> None:
    if report.findings:
        show.say(Text(show.plural(len(report.findings), "finding"), "bold red"))
    else:
        show.say(Text("the new code serves everything that was looked at", "green"))
    for finding in report.findings:
        _print_finding(finding)
    show.say(Text(inert(f"{report.extent()}, in {report.store}"), "dim"))


def _print_finding(finding: CheckFinding) -> None:
    show.say(Text.assemble((f"{finding.subject:<9}", "bold red"), inert(finding.problem)))
    show.say(Text.assemble(" " * 9, ("→ ", "dim"), inert(finding.remedy)))
    if finding.examples:
        named = ", ".join(map(str, finding.examples))
        show.say(Text(f"{' ' * 9}  {named}", "dim"))
