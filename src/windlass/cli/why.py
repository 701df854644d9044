"""Owns `windlass why`: says in words why a job does not run, and which command changes that."""

from __future__ import annotations

import typer
from rich.text import Text

from windlass.app import Windlass
from windlass.app.why import Why
from windlass.cli import facts, options, show, target
from windlass.core.reasons import Reason
from windlass.core.states import State
from windlass.core.text import inert


def why(
    job_id: options.Id,
    *,
    app: options.App = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """Say why a job does not run, or what became of it; and the command that changes that.

    The most telling reason comes first. With --app, the limits of its handlers are known too.
    """
    has_handlers = False

    async def work(chosen: Windlass) -> Why:
        nonlocal has_handlers
        has_handlers = bool(list(chosen.registry))
        return await chosen.control.why(job_id)

    found = target.visit(app, url, work)
    if as_json:
        show.document(_document(found))
        return
    job = found.job
    what = (inert(f"  {job.kind} in queue {job.queue}"), "dim")
    named = Text.assemble(("job ", "dim"), (str(job.id), "bold"))
    show.say(Text.assemble(named, "  ", show.state(job.state), what))
    for reason in found.reasons:
        _print(reason)
    if job.state is State.PENDING and not has_handlers:
        show.note("the limits that handlers have are known with --app MODULE:ATTR")


def _print(reason: Reason) -> None:
    show.say(Text.assemble(("  · ", "yellow"), inert(reason.told)))
    if reason.remedy:
        show.say(Text.assemble("    ", ("→ ", "dim"), inert(reason.remedy)))


def _document(found: Why) -> facts.Facts:
    return {
        "job": facts.job_summary(found.job),
        "now": facts.iso(found.now),
        "reasons": [facts.reason_facts(each) for each in found.reasons],
    }


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command(epilog=options.example("windlass why 0197f3a2-6c1e-7b60-8000-3f1d2c4b5a69"))(why)
