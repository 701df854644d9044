"""Owns the flags of `windlass worker`: what each is called, and what its help says."""

from __future__ import annotations

from typing import Annotated

import typer

from windlass.cli import target


def _flag(name: str, metavar: str, doc: str) -> typer.models.OptionInfo:
    """Describe a flag that is a setting: the settings read and check what is given."""
    option: typer.models.OptionInfo = typer.Option(name, metavar=metavar, help=doc)
    return option


App = Annotated[
    str | None,
    typer.Argument(
        metavar="MODULE:ATTR",
        envvar=target.VARIABLE,
        show_default=False,
        help="The app to serve.",
    ),
]
AppOption = Annotated[str | None, typer.Option("--app", hidden=True)]
Queues = Annotated[
    str | None,
    _flag("--queues", "A,B=N", "Queues to serve; else all. B gets N of the slots at most."),
]
Exclude = Annotated[
    str | None, _flag("--exclude", "A,B", "Queues not to serve, whatever --queues says.")
]
Imports = Annotated[str | None, _flag("--imports", "A,B", "Modules with handlers to load first.")]
Slots = Annotated[
    str | None,
    _flag("--slots", "N|A..B", "Jobs that each process runs at once; A..B follows the load."),
]
Threads = Annotated[str | None, _flag("--threads", "N", "Threads for handlers that are not async.")]
Children = Annotated[str | None, _flag("--children", "N", "Child processes for isolated handlers.")]
BatchSize = Annotated[str | None, _flag("--batch-size", "N", "Jobs claimed at once, at most.")]
PollInterval = Annotated[
    str | None, _flag("--poll-interval", "TIME", "How often an idle worker looks for jobs.")
]
Lease = Annotated[
    str | None,
    _flag("--lease", "TIME", "How long after its last heartbeat its jobs go to others."),
]
ShutdownTimeout = Annotated[
    str | None, _flag("--shutdown-timeout", "TIME", "How long a drain may take.")
]
LogLevel = Annotated[
    str | None, _flag("--log-level", "LEVEL", "debug, info, warning, error or critical.")
]
MetricsPort = Annotated[
    str | None,
    _flag(
        "--metrics-port", "PORT", "Serve metrics and probes there, or at the next port; 0: nowhere."
    ),
]
MetricsHost = Annotated[
    str | None,
    _flag("--metrics-host", "ADDRESS", "0.0.0.0: to other hosts, who need a token for metrics."),
]
Insecure = Annotated[
    bool | None,
    typer.Option(
        "--insecure", show_default=False, help="Serve metrics to other hosts without a token."
    ),
]
LogFormat = Annotated[str | None, _flag("--log-format", "FORMAT", "auto, console or json.")]
Name = Annotated[str, typer.Option(help="What to call this worker; else host and pid.")]
Processes = Annotated[
    str | None,
    _flag("--processes", "N|A..B", "Worker processes to keep alive; A..B follows the load."),
]
Reload = Annotated[
    bool, typer.Option("--reload", help="For development: restart when a source file changes.")
]
Burst = Annotated[
    bool,
    typer.Option(
        "--burst",
        help="End once nothing waits that it may run. What is scheduled for later, like a "
        "retry, is not waited for.",
    ),
]
Drained = Annotated[
    int | None,
    typer.Option(
        "--drain",
        metavar="PID",
        min=1,
        help="Serve nothing, but tell the worker in this process to end as SIGTERM does, and "
        "wait for that: its shutdown timeout, and ten seconds.",
    ),
]
