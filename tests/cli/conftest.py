"""Owns what the tests of the command line share: a directory of their own, and a shell in it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from datetime import timedelta
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from tests.support.postgres.fixtures import postgres_server, postgres_url
from tests.support.screens import TOP, Glass, Sit, bash_in, windlass_in
from tests.torture.programs.families import descendants
from windlass.app.enqueueing.id_generator import IdGenerator
from windlass.cli.root_command import cli
from windlass.core.claims.lanes import Ask, Claim
from windlass.core.failures.error_classes import ErrorClass
from windlass.core.failures.fingerprint import fingerprint
from windlass.core.jobs.job import Attempt, ErrorInfo, Job, Lane, NewJob, Progress
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import State
from windlass.core.values.durations import When
from windlass.core.workers import WorkerInfo, WorkerPulse
from windlass.store.sqlite import SqliteStore
from windlass.version import __version__

__all__ = ["postgres_server", "postgres_url"]
T = TypeVar("T")
TOKEN = 7
SHOP = """
from windlass import Windlass

app = Windlass()


@app.job(queue="mail", priority=3, aliases=["mail_out"])
async def send_email(to: str, copies: int = 1) -> str:
    return f"{to} x{copies}"
"""


def _worker(name: str, **told: Any) -> WorkerInfo:
    usual: dict[str, Any] = {
        "host": "host",
        "slots": 4,
        "kinds": ("send_email",),
        "release": __version__,
    }
    return WorkerInfo(
        id=name,
        name=name,
        pid=12,
        lease=timedelta(seconds=60),
        **usual | told,
    )


class Said:
    """What a command said, and how it ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.out)

    def refused(self, *parts: str, code: int = 1) -> None:
        """Check that this is a refusal, told on stderr alone and without a traceback."""
        assert self.code == code, (self.code, self.out, self.err)
        assert "Traceback" not in self.err
        for part in parts:
            assert part in self.err, (part, self.err)
        if code == 1:
            assert self.err.startswith("error: ")
            assert self.err.count("\n") == 1


class Shell:
    """A directory, a store in it that the commands find by themselves, and a way to call them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ids = IdGenerator()

    @property
    def file(self) -> Path:
        """Where the store is."""
        return self.directory / "windlass.db"

    def __call__(self, *args: object, stdin: str | None = None) -> Said:
        """Call `windlass` with arguments."""
        sys.modules.pop("shop", None)  # As in a new process.
        root = logging.getLogger()
        handlers, level = list(root.handlers), root.level
        result = CliRunner().invoke(cli, [str(arg) for arg in args], input=stdin)
        # A handler that the command installed would write to its stderr, which is closed now.
        root.handlers[:], root.level = handlers, level
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Said(result.exit_code, result.stdout, result.stderr)

    def ok(self, *args: object, stdin: str | None = None) -> Said:
        """Call `windlass`, and expect it to do what it was asked to."""
        said = self(*args, stdin=stdin)
        assert said.code == 0, (said.out, said.err)
        return said

    def ended(self, process: subprocess.Popen[str]) -> Said:
        """Wait for the end of a process, and return what it said."""
        out, err = process.communicate(timeout=60)
        return Said(process.returncode, out, err)

    def write(self, name: str, text: str) -> None:
        """Write a file; Python takes one of the same size and second for that it has compiled."""
        path = self.directory / name
        path.write_text(text)
        if path.suffix == ".py":
            Path(cache_from_source(str(path))).unlink(missing_ok=True)

    # -- the store, without the command line ---------------------------------------------------

    def store(self, work: Coroutine[Any, Any, T], store: SqliteStore) -> T:
        """Run something with the store, and close it."""

        async def run() -> T:
            try:
                return await work
            finally:
                await store.close()

        return asyncio.run(run())

    def enqueue(
        self,
        kind: str = "send_email",
        *,
        queue: str = "default",
        payload: bytes = b"{}",
        due: When | None = None,
        headers: dict[str, str] | None = None,
        count: int = 1,
    ) -> list[UUID]:
        """Add jobs."""
        store = SqliteStore(self.file)
        jobs = [
            NewJob(
                id=self.ids.next(),
                kind=kind,
                queue=queue,
                payload=payload,
                due=due,
                headers=headers or {},
            )
            for _ in range(count)
        ]
        return [each.id for each in self.store(store.enqueue(jobs), store)]

    def fill_queues(self, number: int) -> None:
        """Add a job to each of many queues, `q000` and so on."""
        store = SqliteStore(self.file)
        jobs = [
            NewJob(id=self.ids.next(), kind="fill", queue=f"q{each:03}", payload=b"{}")
            for each in range(number)
        ]
        self.store(store.enqueue(jobs), store)

    def job(self, job_id: UUID) -> Job:
        """Return a job as it is now."""
        store = SqliteStore(self.file)
        job = self.store(store.get(job_id), store)
        assert job is not None
        return job

    def states(self, jobs: Iterable[UUID]) -> set[State]:
        """Return the states that jobs are in now."""
        store = SqliteStore(self.file)

        async def look() -> set[State]:
            found = [await store.get(job) for job in jobs]
            assert None not in found
            return {job.state for job in found if job is not None}

        return self.store(look(), store)

    def is_served(self) -> bool:
        """Say whether a worker has begun; a test that waits for that asks again and again."""
        store = SqliteStore(self.file)
        return any(each.alive for each in self.store(store.workers(), store))

    def start(
        self, kind: str = "send_email", *, queue: str = "default", worker: str = "w1"
    ) -> list[Job]:
        """Let a worker claim all pending jobs of a kind, and say how far they are."""
        store = SqliteStore(self.file)

        async def work() -> list[Job]:
            await store.register(_worker(worker, kinds=(kind,)))
            ask = Ask(lane=Lane(queue, kind), count=10_000)
            jobs = await store.claim(Claim(asks=(ask,)), worker=worker, token=TOKEN)
            for job in jobs[:10]:
                await store.progress(job.id, TOKEN, Progress(fraction=0.4, message="half way"))
            return jobs

        return self.store(work(), store)

    def register(self, worker: str = "w1", **told: Any) -> None:
        """Begin a worker that claims nothing."""
        store = SqliteStore(self.file)
        self.store(store.register(_worker(worker, **told)), store)

    def beat(self, worker: str, pulse: WorkerPulse) -> None:
        """Renew the lease of a worker."""
        store = SqliteStore(self.file)
        beaten = asyncio.to_thread(store.heartbeat, worker, pulse, timedelta(seconds=10))
        assert self.store(beaten, store)

    def retire(self, worker: str = "w1") -> None:
        """End a worker."""
        store = SqliteStore(self.file)
        self.store(store.retire(worker), store)

    def dead(
        self,
        kind: str = "send_email",
        *,
        queue: str = "default",
        count: int = 1,
        message: str = "no",
    ) -> list[UUID]:
        """Add dead jobs, the oldest first."""
        ids = self.enqueue(kind, queue=queue, count=count, payload=b'{"to": "a@example.org"}')
        error = ErrorInfo(
            type="ValueError",
            message=message,
            traceback=f"File x\nline {message}",
            error_class=ErrorClass.PERMANENT,
        )
        error = replace(error, fingerprint=fingerprint(kind, error))
        moves = [
            Transition(
                id=job.id,
                token=TOKEN,
                state=State.DEAD,
                failures=1,
                error=error,
                reason="gave up after 1 failure",
                attempt=Attempt(
                    number=1,
                    worker="w1",
                    started_at=job.started_at,
                    duration=timedelta(milliseconds=5),
                    outcome="failed",
                    error=error,
                ),
            )
            for job in self.start(kind, queue=queue)
        ]
        store = SqliteStore(self.file)
        assert all(self.store(store.settle(moves), store))
        return ids


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """Yield a shell in an empty directory, with no setting made."""
    for name in [name for name in os.environ if name.startswith("WINDLASS_")]:
        monkeypatch.delenv(name)
    for name in ("LOG_LEVEL", "METRICS_PORT", "REDIS_URL", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield Shell(tmp_path)
    sys.modules.pop("shop", None)


@pytest.fixture
def shop(shell: Shell) -> Shell:
    """Return a shell where there is an app, `shop:app`, and its store."""
    shell.write("shop.py", SHOP)
    shell.ok("migrate")
    return shell


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(shell: Shell) -> Iterator[Start]:
    """Start Python in the shell's directory, with more variables if need be; leave none behind."""
    started: list[subprocess.Popen[str]] = []

    def run(*args: str, **environ: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *args],
            cwd=shell.directory,
            env={**os.environ, **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        # Workers that are left below it would finish their jobs first, with the pipes open.
        below = descendants(process.pid) if process.poll() is None else []
        process.kill()
        for pid in below:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture
def glasses() -> Iterator[list[Glass]]:
    """Take terminals, and close them."""
    opened: list[Glass] = []
    yield opened
    for glass in opened:
        glass.close()


@pytest.fixture
def sit(shell: Shell, glasses: list[Glass]) -> Sit:
    """Sit down before a terminal in which `windlass top` runs, or a shell, in the directory."""

    def open_one(
        *args: str, columns: int = 80, lines: int = 24, bash: bool = False, **environ: str
    ) -> Glass:
        called = windlass_in(shell.directory, *TOP, *args, **environ)
        program = bash_in(shell.directory) if bash else called
        glasses.append(Glass(program, columns=columns, lines=lines))
        return glasses[-1]

    return open_one
