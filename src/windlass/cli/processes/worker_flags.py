"""Owns the flags of `windlass worker`: their names and help texts."""

from __future__ import annotations

from typing import Annotated

import typer

from windlass.cli import app_target


def _flag(name: str, metavar: str, doc: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(name, metavar=metavar, help=doc)
    return option


App = Annotated[
    str | None,
    typer.Argument(
        metavar="MODULE:ATTR",
        envvar=app_target.VARIABLE,
        show_default=False,
        help="The app to serve.",
    ),
]
AppOption = Annotated[str | None, typer.Option("--app", hidden=True)]
Queues = Annotated[
    str | None,
    _flag("--queues", "A,B=N", "Queues to serve (default: all); B uses at most N slots."),
]
Exclude = Annotated[
    str | None, _flag("--exclude", "A,B", "Queues not to serve, whatever --queues says.")
]
Space = Annotated[
    str | None, _flag("--space", "NAME", "The space to serve, if the app has several.")
]
Imports = Annotated[str | None, _flag("--imports", "A,B", "Modules with handlers to import first.")]
Concurrency = Annotated[
    str | None,
    _flag("--concurrency", "N|A..B", "Jobs that each process runs at once; A..B scales with load."),
]
Threads = Annotated[str | None, _flag("--threads", "N", "Threads for handlers that are not async.")]
IsolatedProcesses = Annotated[
    str | None, _flag("--isolated-processes", "N", "Child processes for isolated handlers.")
]
ClaimSize = Annotated[str | None, _flag("--claim-size", "N", "Maximum number of jobs per claim.")]
PollInterval = Annotated[
    str | None, _flag("--poll-interval", "TIME", "How often an idle worker polls for jobs.")
]
Lease = Annotated[
    str | None,
    _flag("--lease", "TIME", "Time after its last heartbeat until others take its jobs."),
]
ShutdownTimeout = Annotated[
    str | None, _flag("--shutdown-timeout", "TIME", "How long a drain may take.")
]
WaitForStore = Annotated[
    str | None,
    _flag("--wait-for-store", "TIME", "How long to wait for the store at start; 0: not at all."),
]
LogLevel = Annotated[
    str | None, _flag("--log-level", "LEVEL", "debug, info, warning, error or critical.")
]
MetricsPort = Annotated[
    str | None,
    _flag("--metrics-port", "PORT", "Port for metrics and probes, or the next free one; 0: none."),
]
MetricsHost = Annotated[
    str | None,
    _flag("--metrics-host", "ADDRESS", "0.0.0.0 serves other hosts, which then need a token."),
]
Insecure = Annotated[
    bool | None,
    typer.Option(
        "--insecure", show_default=False, help="Serve metrics to other hosts without a token."
    ),
]
LogFormat = Annotated[str | None, _flag("--log-format", "FORMAT", "auto, console or json.")]
Name = Annotated[str, typer.Option(help="Name of this worker; default: host and pid.")]
Processes = Annotated[
    str | None,
    _flag("--processes", "N|A..B", "Worker processes to keep alive; A..B scales with load."),
]
Reload = Annotated[
    bool, typer.Option("--reload", help="For development: restart when a source file changes.")
]
Burst = Annotated[
    bool,
    typer.Option(
        "--burst",
        help="Exit once no runnable job is left. Scheduled jobs, like retries, are left.",
    ),
]
Drained = Annotated[
    int | None,
    typer.Option(
        "--drain",
        metavar="PID",
        min=1,
        help="Do not serve; drain the worker with this process id, like SIGTERM, and wait for its "
        "end: its shutdown timeout plus ten seconds.",
    ),
]
