"""Owns the command `windlass chaos`; the storm and its checker are in `windlass.chaos`."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.text import Text

from windlass.chaos.plan import FaultKind
from windlass.cli import options as shared
from windlass.cli.output import console as show
from windlass.core.errors import WindlassError
from windlass.core.values.durations import duration

if TYPE_CHECKING:
    from windlass.chaos.options import Options
    from windlass.chaos.report.report import Report

EXAMPLES = (
    "windlass chaos",
    "windlass chaos --store postgres --time 5m --faults 100 --html chaos.html",
    "windlass chaos --url postgresql://staging.example.org/shop --yes",
)
_MIN_SECONDS, _MIN_LEASE = 1.0, 1.0
_MAX_SEED = 2**31
_STOPPED = 130
"""The exit code after Ctrl-C or SIGTERM."""

Store = Annotated[
    str, typer.Option(metavar="NAME", help="sqlite, postgres or redis: a store of its own.")
]
Url = Annotated[
    str,
    typer.Option(
        "--url", metavar="URL", show_default=False, help="A staging store of yours, which is empty."
    ),
]
Jobs = Annotated[int, typer.Option(min=1, max=10_000_000, help="About how many jobs to enqueue.")]
Faults = Annotated[int, typer.Option(min=0, max=100_000, help="Number of faults to throw.")]
Seed = Annotated[
    int | None,
    typer.Option(min=0, max=_MAX_SEED, help="Decides the faults; printed, random unless given."),
]
Time = Annotated[str, typer.Option("--time", metavar="TIME", help="How long the storm lasts.")]
Only = Annotated[
    list[FaultKind] | None,
    typer.Option("--only", metavar="FAULT", help="Throw only this fault; may be repeated."),
]
Lease = Annotated[str, typer.Option(metavar="TIME", help="The lease of the workers.")]
JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write the report as JSON.")
]
HtmlFile = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write the report as a page.")
]
Keep = Annotated[
    bool, typer.Option("--keep", help="Keep ledger and logs, also if no law was broken.")
]


def chaos(
    *,
    store: Store = "sqlite",
    url: Url = "",
    jobs: Jobs = 2_000,
    faults: Faults = 20,
    seed: Seed = None,
    time: Time = "60s",
    only: Only = None,
    lease: Lease = "3s",
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
    keep: Keep = False,
    yes: shared.Yes = False,
) -> None:
    """Throw faults at workers, and check that every promise is kept.

    Starts producers and workers on a store of its own, kills and stops them, breaks their network
    and their server by a printed seed, and compares what an independent ledger saw with what the
    store recorded. The exit code is 0 only if no law was broken, and the run has evidence.
    """
    # Imported here: no other command needs it.
    from windlass.chaos.options import STORES, Options

    if store not in STORES:
        raise typer.BadParameter(f"--store must be one of {', '.join(STORES)}, got {store!r}")
    options = Options(
        store=store,
        url=url,
        jobs=jobs,
        faults=faults,
        seconds=_seconds("--time", time, _MIN_SECONDS),
        seed=secrets.randbelow(_MAX_SEED) if seed is None else seed,
        only=tuple(only or ()),
        lease=_seconds("--lease", lease, _MIN_LEASE),
    )
    _confirm(options, yes)
    report = _run(options, keep)
    _write(report, json_file, html_file)
    raise typer.Exit(_STOPPED if report.ok and report.is_cut_short else int(not report.ok))


def _seconds(name: str, text: str, least: float) -> float:
    with shared.usage():
        seconds = duration(shared.span(text) or 0).total_seconds()
    if seconds < least:
        raise typer.BadParameter(f"{name} must be at least {least:g}s, got {text!r}")
    return seconds


def _confirm(options: Options, yes: bool) -> None:
    from windlass.settings.url_masking import redact_url

    if not options.url or yes:
        return
    where = redact_url(options.url)
    if not sys.stdin.isatty():
        raise typer.BadParameter(
            f"chaos breaks connections to {where}; confirm with --yes (stdin is not a terminal)"
        )
    typer.confirm(f"Throw {options.faults} faults at workers on {where}?", abort=True)


def _run(options: Options, keep: bool) -> Report:
    from windlass.chaos.report.report import command_of
    from windlass.chaos.report.text import lines_of

    show.say(Text(command_of(options), "bold"))
    # Resolved: on macOS it is behind a link, and a socket's path must be short.
    directory = Path(tempfile.mkdtemp(prefix="windlass-chaos-")).resolve()
    is_kept = keep
    try:
        report = asyncio.run(_storm(options, directory))
        is_kept = keep or not report.ok
    except WindlassError:
        is_kept = any(directory.rglob("*.log"))
        if is_kept:
            show.note(f"logs are kept in {directory}")
        raise
    except (KeyboardInterrupt, asyncio.CancelledError):
        show.note("stopped; all processes have ended")
        raise typer.Exit(_STOPPED) from None
    finally:
        if not is_kept:
            shutil.rmtree(directory, ignore_errors=True)
    if is_kept:
        report = msgspec.structs.replace(report, directory=str(directory))
    for line in lines_of(report):
        style = "bold red" if "BROKEN" in line or line.startswith("NOT TRIED") else ""
        show.say(Text(line, style))
    return report


async def _storm(options: Options, directory: Path) -> Report:
    from windlass.chaos.run import run_chaos
    from windlass.chaos.screen import progress

    with progress(show.stdout(), options.seconds) as update:
        return await run_chaos(options, directory, update, reports_early=True)


def _write(report: Report, json_file: Path | None, html_file: Path | None) -> None:
    from windlass.chaos.report.page import page_of

    if json_file is not None:
        json_file.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    if html_file is not None:
        html_file.write_text(page_of(report), encoding="utf-8")
