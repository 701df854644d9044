"""Owns `windlass worker`: its flags.

The supervisor, its worker processes and `--drain` are in `cli.processes`.
"""

from __future__ import annotations

import typer

from windlass.cli import app_target as target
from windlass.cli import options
from windlass.cli.processes import worker_flags
from windlass.cli.processes.supervisor_process import supervise
from windlass.cli.processes.worker_command import WorkerCommand

EXAMPLES = (
    "windlass worker shop.jobs:app --processes 4",
    "windlass worker shop.jobs:app --queues mail=10,reports --concurrency 50",
)


def worker(
    ctx: typer.Context,
    app: worker_flags.App = None,
    *,
    app_option: worker_flags.AppOption = None,
    url: options.Url = None,
    queues: worker_flags.Queues = None,
    exclude: worker_flags.Exclude = None,
    space: worker_flags.Space = None,
    imports: worker_flags.Imports = None,
    concurrency: worker_flags.Concurrency = None,
    processes: worker_flags.Processes = None,
    threads: worker_flags.Threads = None,
    isolated_processes: worker_flags.IsolatedProcesses = None,
    claim_size: worker_flags.ClaimSize = None,
    poll_interval: worker_flags.PollInterval = None,
    lease: worker_flags.Lease = None,
    shutdown_timeout: worker_flags.ShutdownTimeout = None,
    wait_for_store: worker_flags.WaitForStore = None,
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
        "space": space,
        "imports": imports,
        "concurrency": concurrency,
        "processes": processes,
        "threads": threads,
        "isolated_processes": isolated_processes,
        "claim_size": claim_size,
        "poll_interval": poll_interval,
        "lease": lease,
        "shutdown_timeout": shutdown_timeout,
        "wait_for_store": wait_for_store,
        "metrics_port": metrics_port,
        "metrics_host": metrics_host,
        "insecure": insecure or None,
        "log_level": log_level,
        "log_format": log_format,
    }
    if drained is not None:
        # Imported here, because it loads rich, which a worker never needs.
        from windlass.cli.processes.drain_command import drain

        drain(drained, shutdown_timeout)
        return
    if queues is not None and not queues.strip():
        raise typer.BadParameter("--queues must name at least one queue; leave it out to serve all")
    reference = app_option or app or target.reference_in_force()
    if reference is None:
        raise typer.BadParameter(
            f"no app was given; write `windlass worker module:attribute`, or set {target.VARIABLE}"
        )
    target.check(reference)
    order = WorkerCommand(reference, flags, name, burst, debug=bool(ctx.obj))
    if code := supervise(order, reload=reload):
        raise typer.Exit(code)
