"""Owns `windlass why`: why a job does not run, and which command changes that."""

from __future__ import annotations

from rich.text import Text

from windlass.app import Windlass
from windlass.app.control.why import Why, why_facts
from windlass.cli import options
from windlass.cli.output import console as show
from windlass.core.jobs.states import State
from windlass.core.values.names import is_builtin
from windlass.core.values.text import inert
from windlass.core.why.reason import Reason

EXAMPLES = ("windlass why 0197f3a2-6c1e-7b60-8000-3f1d2c4b5a69",)


def why(job_id: options.Id, *, target: options.Target, as_json: options.AsJson = False) -> None:
    """Say why a job does not run, or what became of it; and the command that changes that.

    The most important reason comes first. Limits are those of --app, or as live workers report.
    """

    has_handlers = False

    async def work(chosen: Windlass) -> Why:
        nonlocal has_handlers
        has_handlers = not all(map(is_builtin, chosen.registry))
        return await chosen.control.awhy(await chosen.jobs.ajob_id(job_id))

    found = target.visit(work)
    if as_json:
        show.document(why_facts(found))
        return
    job = found.job
    what = (inert(f"  {job.kind} in queue {job.queue}"), "dim")
    named = Text.assemble(("job ", "dim"), (str(job.id), "bold"))
    show.say(Text.assemble(named, "  ", show.state(job.state), what))
    for reason in found.reasons:
        _print(reason)
    if job.state is not State.PENDING or found.knows_limits:
        return
    if has_handlers:
        show.note(
            f"the app has no handler of kind {job.kind}, and no live worker has one: start a "
            "worker of the app that has it"
        )
    else:
        show.note(
            f"whether a limit holds kind {job.kind} back is unknown; add --app MODULE:ATTR, or "
            "start a worker with its handler"
        )


def _print(reason: Reason) -> None:
    show.say(Text.assemble(("  · ", "yellow"), inert(reason.message)))
    if reason.remedy:
        show.say(Text.assemble("    ", ("→ ", "dim"), inert(reason.remedy)))
