"""Owns `windlass enqueue`: one job from the shell, checked by the app where there is one."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Annotated, Any

import typer

from windlass.app import Handle, Producer, Windlass
from windlass.cli import options, places, show, target
from windlass.core.errors import ConfigError
from windlass.core.unique import Unique

Payload = Annotated[
    str,
    typer.Argument(
        metavar="PAYLOAD", help="The arguments as a JSON object; - reads them from stdin."
    ),
]


def enqueue(
    kind: Annotated[str, typer.Argument(metavar="KIND", show_default=False)],
    payload: Payload = "{}",
    *,
    app: options.App = None,
    url: options.Url = None,
    queue: Annotated[str | None, typer.Option(help="The queue; else that of the kind.")] = None,
    priority: Annotated[
        int | None, typer.Option(help="-1000 to 1000; greater is more urgent.")
    ] = None,
    delay: Annotated[str | None, typer.Option(metavar="TIME", help="Due in, like 5m.")] = None,
    at: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Due at, like 2026-03-01T09:00:00Z.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="Not run after that time, or instant.")
    ] = None,
    unique: Annotated[
        str | None, typer.Option(metavar="KEY", help="Add nothing while a job holds this key.")
    ] = None,
    unique_scope: Annotated[
        str | None,
        typer.Option(metavar="SCOPE", help="Among which jobs: kind (the default), queue, global."),
    ] = None,
    unique_until: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="How long: claimed, settled (the default), or like 24h."),
    ] = None,
    on_duplicate: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            help="What to do to the job that holds the key, if it has not been started: keep "
            "(the default), replace its payload, push its due time, supersede (both).",
        ),
    ] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="What the job is known by as done.")
    ] = None,
    max_retries: Annotated[int | None, typer.Option(min=0, help="Tries after the first.")] = None,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long it may run, like 30s.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Enqueue a job, and print its id.

    With an app the kind must be known and the payload must fit its handler. Without one, nothing
    is checked here: the worker checks, and what does not fit goes dead.
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
        )
    handle = _enqueue(chosen, producer, value)
    if not list(chosen.registry):
        show.note(
            "no app was given: the payload is checked by the worker only, and without --queue "
            "the job goes to the queue 'default'"
        )
    _tell(handle, as_json=as_json)


def _unique(
    key: str | None, scope: str | None, until: str | None, on_duplicate: str | None
) -> str | Unique | None:
    given: dict[str, Any] = {"scope": scope, "until": until, "on_duplicate": on_duplicate}
    more = {name: value for name, value in given.items() if value is not None}
    if key is None and more:
        raise ValueError("--unique-scope, --unique-until and --on-duplicate go with --unique KEY")
    if key is None or not more:
        return key
    try:
        return Unique(key, **more)
    except ConfigError as error:
        raise ValueError(str(error)) from None


def read_json(text: str) -> Any:
    """Read what somebody typed, or piped, as strict JSON."""
    if text == "-":
        text = sys.stdin.read()

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    try:
        return json.loads(text, parse_constant=refuse)
    except ValueError as error:
        raise ValueError(
            f'the payload is not JSON: {error}; write it like \'{{"to": "a@example.org"}}\''
        ) from None
    except RecursionError:
        raise ValueError("the payload is nested too deeply") from None


def _producer(kind: str, app: str | None, url: str | None) -> tuple[Windlass, Producer[[Any], Any]]:
    reference = app or target.reference_in_force()
    if reference is None:
        chosen = Windlass(url)
    else:
        chosen = target.load(reference)
        chosen.configure(url=url)
        chosen.load_imports(chosen.settings.imports)
    return chosen, chosen.named(kind)


def _enqueue(app: Windlass, producer: Producer[[Any], Any], value: Any) -> Handle[Any]:
    places.refuse_private(app.store)
    draft = producer.draft(value)
    is_new = asyncio.run(app.store.schema()).found is None
    try:
        (handle,) = app.enqueue_many([draft])
    finally:
        asyncio.run(app.aclose())
    if is_new:
        show.note(f"created {app.store.location}")
    return handle


def _tell(handle: Handle[Any], *, as_json: bool) -> None:
    if as_json:
        show.document({"id": str(handle.id), "existing": handle.existing})
        return
    if handle.existing:
        show.note("nothing was added: this job holds the unique key")
    show.say(str(handle.id))


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command(
        epilog=options.example(
            """windlass enqueue send_email '{"to": "a@example.org"}' --app shop.jobs:app"""
        )
    )(enqueue)
