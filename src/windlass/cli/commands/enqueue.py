"""Owns `windlass enqueue`: one job from the shell, checked by the app where there is one."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated, Any

import typer

from windlass.app import EnqueueUncertain, Handle, Producer, Windlass
from windlass.app.registration.importing import load_imports
from windlass.cli import app_target as target
from windlass.cli import completion, options
from windlass.cli.app_target import refuse_private
from windlass.cli.output import console as show
from windlass.core.errors import ConfigError, StoreUnavailable
from windlass.core.jobs.unique import Unique
from windlass.core.payloads.json_checks import strict_json

Payload = Annotated[
    str,
    typer.Argument(
        metavar="PAYLOAD", help="The arguments as a JSON object; - reads them from stdin."
    ),
]

EXAMPLES = ("""windlass enqueue send_email '{"to": "a@example.org"}' --app shop.jobs:app""",)


def enqueue(
    kind: Annotated[
        str,
        typer.Argument(metavar="KIND", show_default=False, autocompletion=completion.kinds),
    ],
    payload: Payload = "{}",
    *,
    app: options.App = None,
    url: options.Url = None,
    queue: Annotated[
        str | None,
        typer.Option(
            help="The queue; by default that of the kind.", autocompletion=completion.queues
        ),
    ] = None,
    priority: Annotated[
        int | None, typer.Option(help="-1000 to 1000; greater is more urgent.")
    ] = None,
    delay: Annotated[
        str | None, typer.Option(metavar="TIME", help="Run after this delay, like 5m.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="Run at this time, like 2026-03-01T09:00:00Z."),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Cancel if not started by then: a duration or a time."),
    ] = None,
    unique: Annotated[
        str | None, typer.Option(metavar="KEY", help="Add nothing while a job holds this key.")
    ] = None,
    unique_scope: Annotated[
        str | None,
        typer.Option(
            metavar="SCOPE", help="Scope of the key: kind (the default), queue or global."
        ),
    ] = None,
    unique_until: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN",
            help="Until when the key is held: claimed, settled (the default), or a duration like "
            "24h.",
        ),
    ] = None,
    on_duplicate: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            help="If the job that holds the key has not started: keep it (the default), replace "
            "its payload, push its due time, or supersede (both).",
        ),
    ] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="The job's idempotency key.")
    ] = None,
    max_retries: Annotated[
        int | None, typer.Option(min=0, help="Retries after the first attempt.")
    ] = None,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long it may run, like 30s.")
    ] = None,
    tags: Annotated[
        list[str] | None, typer.Option("--tag", help="A tag to find it by; may be repeated.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Enqueue a job, and print its id.

    With an app the kind must be known and the payload must fit its handler. Without one, nothing is
    checked here: the worker checks, and a job that does not fit goes dead.
    """
    with options.usage():
        value = read_json(payload)
        chosen, producer = _producer(kind, app, url)
        producer = producer.using(
            queue=queue,
            priority=priority,
            delay=options.span(delay),
            at=options.instant(at),
            expires=options.span_or_instant(expires),
            unique=_unique(unique, unique_scope, unique_until, on_duplicate),
            idempotency_key=idempotency_key,
            max_retries=max_retries,
            timeout=options.span(timeout),
            tags=tags,
        )
    handle = _enqueue(chosen, producer, value)
    if not list(chosen.registry):
        show.note(
            "no app was given, so only the worker checks the payload, and without --queue the "
            "job goes to queue 'default'"
        )
    _tell(handle, as_json=as_json)


def _unique(
    key: str | None, scope: str | None, until: str | None, on_duplicate: str | None
) -> str | Unique | None:
    given: dict[str, Any] = {"scope": scope, "until": until, "on_duplicate": on_duplicate}
    more = {name: value for name, value in given.items() if value is not None}
    if key is None and more:
        raise ValueError("--unique-scope, --unique-until and --on-duplicate need --unique KEY")
    if key is None or not more:
        return key
    try:
        return Unique(key, **more)
    except ConfigError as error:
        raise ValueError(str(error)) from None


def read_json(text: str) -> Any:
    """Parse an argument, or stdin, as strict JSON."""
    if text == "-":
        text = sys.stdin.read()

    try:
        return strict_json(text)
    except ValueError as error:
        raise ValueError(
            f'the payload is not JSON: {error}; write it like \'{{"to": "a@example.org"}}\''
        ) from None


def _producer(kind: str, app: str | None, url: str | None) -> tuple[Windlass, Producer[[Any], Any]]:
    reference = app or target.reference_in_force()
    if reference is not None:
        chosen = target.load(reference)
        chosen.configure(url=url)
        load_imports(chosen.settings.imports)
    else:
        # Set afterwards, so that an error names the option. The one of the settings is not read.
        chosen = Windlass("memory://" if url else None)
        chosen.configure(url=url)
    return chosen, chosen.producer(kind)


def _enqueue(app: Windlass, producer: Producer[[Any], Any], value: Any) -> Handle[Any]:
    refuse_private(app.store)
    draft = producer.draft(value)
    is_new = asyncio.run(app.store.schema()).found is None
    try:
        (handle,) = app.enqueue_many([draft])
    except EnqueueUncertain as error:
        # Running the command again would make another job.
        raise StoreUnavailable(
            f"{error.reason}: the job may or may not have been enqueued; check before you repeat "
            f"this: windlass jobs show {draft.job.id}"
        ) from error
    finally:
        asyncio.run(app.aclose())
    if is_new:
        show.note(f"created {app.store.location}")
    return handle


def _tell(handle: Handle[Any], *, as_json: bool) -> None:
    if as_json:
        show.document({"id": str(handle.id), "is_duplicate": handle.is_duplicate})
        return
    if handle.is_duplicate:
        show.note("nothing was added: this job holds the unique key")
    show.say(str(handle.id))
