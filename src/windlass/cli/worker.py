"""Owns `windlass worker`: loads the app, sets up its logs, and serves until it is told to stop.

How another process is told to stop, `--drain`, is drain.py's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import typer

from windlass.app import Windlass
from windlass.cli import options, places, target, worker_flags
from windlass.cli.serve import serve
from windlass.cli.supervise import supervise
from windlass.observe.logs import configure_logging, get_logger
from windlass.runtime.leash import Hello, Leash

log = get_logger("windlass.cli")


def worker(
    app: worker_flags.App = None,
    *,
    app_option: worker_flags.AppOption = None,
    url: options.Url = None,
    queues: worker_flags.Queues = None,
    exclude: worker_flags.Exclude = None,
    imports: worker_flags.Imports = None,
    slots: worker_flags.Slots = None,
    processes: worker_flags.Processes = None,
    threads: worker_flags.Threads = None,
    children: worker_flags.Children = None,
    batch_size: worker_flags.BatchSize = None,
    poll_interval: worker_flags.PollInterval = None,
    lease: worker_flags.Lease = None,
    shutdown_timeout: worker_flags.ShutdownTimeout = None,
    metrics_port: worker_flags.MetricsPort = None,
    metrics_host: worker_flags.MetricsHost = None,
    insecure: worker_flags.Insecure = None,
    log_level: worker_flags.LogLevel = None,
    log_format: worker_flags.LogFormat = None,
    name: worker_flags.Name = "",
    reload: worker_flags.Reload = False,
    burst: worker_flags.Burst = False,
    drained: worker_flags.Drained = None,
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
        "metrics_port": metrics_port,
        "metrics_host": metrics_host,
        "insecure": insecure or None,
        "log_level": log_level,
        "log_format": log_format,
    }
    if drained is not None:
        # Imported here, because it loads rich, which a worker never needs.
        from windlass.cli.drain import drain

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
    _serve(reference, flags, leash, name=name, burst=burst)


def _serve(
    reference: str, flags: Mapping[str, object], leash: Leash, *, name: str, burst: bool
) -> None:
    """Be the worker of a supervisor, which holds the leash."""
    chosen = target.load(reference)
    chosen.configure(**flags)
    settings = chosen.settings
    configure_logging(settings.log_level, settings.log_format, redact=settings.redact)
    leash.record()
    places.refuse_private(chosen.store)
    served = chosen.worker(name=name, burst=burst, leash=leash)
    patience = served.patience()
    seconds = None if patience is None else patience.total_seconds()
    told = replace(settings, encryption_keys=())  # What runs no handlers needs no keys.
    leash.say(Hello(told, chosen.store.location, seconds))
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
