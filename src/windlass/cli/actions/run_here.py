"""Owns a run of a job in this terminal: how it is shown, and the debugger after it."""

from __future__ import annotations

import os
import pdb as debugger  # noqa: T100 - it is what --pdb asks for.
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout

import typer
from msgspec.structs import replace
from rich.text import Text

from windlass.app import Windlass
from windlass.app.local_runs.local_run import LocalRun, run_here
from windlass.cli import options
from windlass.cli.output import console as show
from windlass.cli.output.step_details import step_lines
from windlass.core.documents import Facts
from windlass.core.errors import ConfigError, UnknownKind
from windlass.core.jobs.job import Job, Progress
from windlass.core.jobs.outcomes import Asleep, Cancelled, Snoozed, Succeeded
from windlass.core.payloads.masked_job import masked, value_of
from windlass.core.values.durations import brief
from windlass.core.values.text import inert
from windlass.core.workflows.step_rows import step_facts
from windlass.observability.logs import configure_logging

_OUTCOMES = {
    Succeeded: ("completed", "bold green"),
    Snoozed: ("snoozed", "bold blue"),
    Asleep: ("asleep", "bold blue"),
    Cancelled: ("cancelled", "bold yellow"),
}
_FAILED = ("failed", "bold red")


def run(
    target: options.Target, job_id: str, *, pdb: bool, again: bool, settle: bool, as_json: bool
) -> None:
    """Run a job here, show how it went, and exit with 1 if it failed."""

    async def work(chosen: Windlass) -> tuple[LocalRun, Job]:
        settings = chosen.settings
        configure_logging(settings.log_level, settings.log_format, redact=settings.redact)
        whole = await chosen.jobs.ajob_id(job_id)
        try:
            ended = await run_here(
                chosen, whole, again=again, settle=settle, progress=_note_progress
            )
        except UnknownKind as error:
            raise error if chosen.home else _without_app(error) from None
        result = ended.outcome.result if isinstance(ended.outcome, Succeeded) else None
        readable = chosen.registry.readable(replace(ended.job, result=result))
        return ended, masked(readable, ended.redaction)

    # A document is all that is on standard output.
    with _prints_to_stderr() if as_json else nullcontext():
        ended, job = target.visit(work)
    if as_json:
        show.document(_document(ended, job))
    else:
        _print(ended, job)
    if ended.error is None:
        return
    if pdb:
        debugger.post_mortem(ended.error.__traceback__)
    raise typer.Exit(1)


@contextmanager
def _prints_to_stderr() -> Iterator[None]:
    """Send what handlers and their processes print to standard error."""
    try:
        output = os.dup(1)
        os.dup2(2, 1)
    except OSError:  # One of them is closed.
        output = None
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if output is not None:
            os.dup2(output, 1)
            os.close(output)


def _without_app(error: UnknownKind) -> ConfigError:
    return ConfigError(
        f"no app was given, so the handler of {error.kind!r} is not known; add --app MODULE:ATTR"
    )


def _note_progress(progress: Progress) -> None:
    show.note(f"progress {progress.fraction:.0%} {progress.message}".rstrip())


def _word(ended: LocalRun) -> tuple[str, str]:
    return _OUTCOMES.get(type(ended.outcome), _FAILED)


def _traceback(ended: LocalRun) -> str:
    if ended.error is None:
        return ""
    whole = "".join(traceback.format_exception(ended.error)).rstrip()
    return ended.redaction.text(whole, code=True, limit=sys.maxsize)


def _record(ended: LocalRun) -> str:
    """Return what is recorded of such a run."""
    move = ended.next
    if move is None:
        return "completed by its transaction" if ended.by_transaction else "waiting for its event"
    reason = f": {ended.redaction.text(move.reason)}" if move.reason else ""
    return f"{move.state}{reason}"


def _print(ended: LocalRun, job: Job) -> None:
    word, style = _word(ended)
    show.say(
        Text.assemble(
            ("job ", "dim"),
            (str(job.id), "bold"),
            f"  {inert(job.kind)}, attempt {job.attempt}  ",
            (word, style),
            f" after {brief(ended.duration)}",
        )
    )
    show.say(Text.assemble(("payload  ", "dim"), inert(str(value_of(job.payload)))))
    if job.result is not None:
        show.say(Text.assemble(("result   ", "dim"), inert(str(value_of(job.result)))))
    for line in step_lines(job) if job.steps else ():
        show.stdout().print(line, soft_wrap=True)
    if ended.streamed:
        show.say(Text.assemble(("stream   ", "dim"), show.plural(ended.streamed, "chunk")))
    if text := _traceback(ended):
        show.say(show.block(text, "red"))
    said = "recorded" if ended.recorded else "nothing was recorded; a worker would have recorded"
    show.note(f"{said}: {_record(ended)}")


def _document(ended: LocalRun, job: Job) -> Facts:
    error, move = ended.error, ended.next
    return {
        "id": str(job.id),
        "kind": job.kind,
        "attempt": job.attempt,
        "outcome": _word(ended)[0],
        "seconds": ended.duration.total_seconds(),
        "payload": value_of(job.payload),
        "result": None if job.result is None else value_of(job.result),
        "error": None
        if error is None
        else {
            "type": type(error).__qualname__,
            "message": ended.redaction.text(str(error)),
            "traceback": _traceback(ended),
        },
        "steps": step_facts(job),
        "streamed": ended.streamed,
        "rolled_back": ended.transactions,
        "recorded": ended.recorded,
        "next": {
            "state": None if move is None else move.state.value,
            "reason": None
            if move is None or not move.reason
            else ended.redaction.text(move.reason),
        },
    }
