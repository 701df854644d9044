"""Owns `windlass worker`: loads the app, sets up its logs, and serves until it is told to stop.

How another process is told to stop, `--drain`, is drain.py's.
"""

from __future__ import annotations

from typing import Annotated

import typer

from windlass.app import Windlass
from windlass.cli import options, places, target
from windlass.cli.drain import drain
from windlass.cli.serve import serve
from windlass.cli.supervise import supervise
from windlass.observe.logs import configure_logging, get_logger
from windlass.runtime.leash import Hello, Leash

log = get_logger("windlass.cli")

App = Annotated[
    str | None,
    typer.Argument(
        metavar="MODULE:ATTR",
        envvar=target.VARIABLE,
        show_default=False,
        help="The app to serve.",
    ),
]


def _flag(name: str, metavar: str, doc: str) -> typer.models.OptionInfo:
    """Describe a flag that is a setting: settings.py reads and checks what is given."""
    option: typer.models.OptionInfo = typer.Option(name, metavar=metavar, help=doc)
    return option


def worker(
    app: App = None,
    *,
    app_option: Annotated[str | None, typer.Option("--app", hidden=True)] = None,
    url: options.Url = None,
    queues: Annotated[
        str | None,
        _flag("--queues", "A,B=N", "Queues to serve; else all. B gets N of the slots at most."),
    ] = None,
    exclude: Annotated[
        str | None, _flag("--exclude", "A,B", "Queues not to serve, whatever --queues says.")
    ] = None,
    imports: Annotated[
        str | None, _flag("--imports", "A,B", "Modules with handlers to load first.")
    ] = None,
    slots: Annotated[
        str | None,
        _flag("--slots", "N|A..B", "Jobs that each process runs at once; A..B follows the load."),
    ] = None,
    processes: Annotated[
        str | None,
        _flag("--processes", "N|A..B", "Worker processes to keep alive; A..B follows the load."),
    ] = None,
    threads: Annotated[
        str | None, _flag("--threads", "N", "Threads for handlers that are not async.")
    ] = None,
    children: Annotated[
        str | None, _flag("--children", "N", "Child processes for isolated handlers.")
    ] = None,
    batch_size: Annotated[
        str | None, _flag("--batch-size", "N", "Jobs claimed at once, at most.")
    ] = None,
    poll_interval: Annotated[
        str | None, _flag("--poll-interval", "TIME", "How often an idle worker looks for jobs.")
    ] = None,
    lease: Annotated[
        str | None,
        _flag("--lease", "TIME", "How long after its last heartbeat its jobs go to others."),
    ] = None,
    shutdown_timeout: Annotated[
        str | None, _flag("--shutdown-timeout", "TIME", "How long a drain may take.")
    ] = None,
    log_level: Annotated[
        str | None, _flag("--log-level", "LEVEL", "debug, info, warning, error or critical.")
    ] = None,
    log_format: Annotated[
        str | None, _flag("--log-format", "FORMAT", "auto, console or json.")
    ] = None,
    name: Annotated[str, typer.Option(help="What to call this worker; else host and pid.")] = "",
    reload: Annotated[
        bool, typer.Option("--reload", help="For development: restart when a source file changes.")
    ] = False,
    burst: Annotated[
        bool,
        typer.Option(
            "--burst",
            help="End once nothing waits that it may run. What is scheduled for later, like a "
            "retry, is not waited for.",
        ),
    ] = False,
    drained: Annotated[
        int | None,
        typer.Option(
            "--drain",
            metavar="PID",
            min=1,
            help="Serve nothing, but tell the worker in this process to end as SIGTERM does, and "
            "wait for that: its shutdown timeout, and ten seconds.",
        ),
    ] = None,
) -> None:
    """Serve the jobs of an app, in worker processes that a supervisor keeps alive.

    The first SIGTERM or Ctrl-C drains: nothing more is claimed, and what runs may finish within the
    shutdown timeout. A second one gives everything back at once. SIGHUP replaces every worker,
    each only when its successor serves.
    """
    flags = {
        "url": url,
        "queues": queues,
        "exclude": exclude,
        "imports": imports,
        "slots": slots,
        "processes": processes,
        "threads": threads,
        "children": children,
        "batch_size": batch_size,
        "poll_interval": poll_interval,
        "lease": lease,
        "shutdown_timeout": shutdown_timeout,
        "log_level": log_level,
        "log_format": log_format,
    }
    if drained is not None:
        drain(drained, shutdown_timeout)
        return
    if queues is not None and not queues.strip():
        raise typer.BadParameter("--queues names none; leave it out to serve all of them")
    reference = app_option or app or target.reference_in_force()
    if reference is None:
        raise typer.BadParameter(
            f"which app? write `windlass worker module:attribute`, or set {target.VARIABLE}"
        )
    leash = Leash.from_environment()
    if leash is None:
        supervise(reference, flags, name=name, burst=burst, reload=reload)
        return
    chosen = target.load(reference)
    chosen.configure(**flags)
    configure_logging(chosen.settings.log_level, chosen.settings.log_format)
    leash.record()
    places.refuse_private(chosen.store)
    served = chosen.worker(name=name, burst=burst, leash=leash)
    patience = served.patience()
    seconds = None if patience is None else patience.total_seconds()
    leash.say(Hello(chosen.settings, chosen.store.location, seconds))
    _warn(chosen, reference)
    serve(served, leash)


def _warn(app: Windlass, reference: str) -> None:
    """Log what is surely not meant."""
    for warning in app.resolved.warnings:
        log.warning("setting.unknown", problem=warning)
    if not list(app.registry):
        log.warning(
            "worker.serves_nothing",
            problem=f"no handler is registered in {reference}",
            remedy="import the modules that have them, there or with --imports",
        )


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command(
        epilog=options.example(
            "windlass worker shop.jobs:app --processes 4",
            "windlass worker shop.jobs:app --queues mail=10,reports --slots 50",
        )
    )(worker)
