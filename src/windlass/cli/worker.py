"""Owns `windlass worker`: what its flags order.

A supervisor keeps processes for that, supervise.py's, and each of them is held.py's; how another
process is told to stop, `--drain`, is drain.py's.
"""

from __future__ import annotations

import typer

from windlass.cli import options, target, worker_flags
from windlass.cli.held import Order
from windlass.cli.supervise import supervise


def worker(
    ctx: typer.Context,
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
    target.check(reference)
    order = Order(reference, flags, name, burst, debug=bool(ctx.obj))
    supervise(order, reload=reload)


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command(
        epilog=options.example(
            "windlass worker shop.jobs:app --processes 4",
            "windlass worker shop.jobs:app --queues mail=10,reports --slots 50",
        )
    )(worker)
