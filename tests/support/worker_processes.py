"""Owns the yard in which workers are tortured: processes, signals, gates, logs and patience.

Nothing here waits by sleeping and hoping: `until` looks again and again, and gives up loudly.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import windlass
from tests.support.ledger import Ledger
from tests.torture.programs.families import descendants
from tests.torture.programs.patches import VARIABLE
from windlass import Kind, State, Windlass
from windlass.app.producer import Producer
from windlass.core.jobs.job import Job
from windlass.core.workers import WorkerRecord

T = TypeVar("T")
LEASE = 2.0
"""L of the torture list, in seconds."""
PATIENCE = float(os.environ.get("TORTURE_PATIENCE", "60"))
"""Seconds after which what has not happened will not, also on a noisy machine."""
NOISE = 30.0
"""Seconds by which a noisy machine may be late with what has a deadline."""
CALM = {"windlass.worker.engine.start_pace:MAX_START_SECONDS": 10.0}
"""Patches for a test that counts attempts: a busy machine would have jobs given back unbegun."""
PROGRAMS = Path(__file__).parents[1] / "torture/programs"
ROOT = Path(__file__).parents[2]
SOURCES = Path(windlass.__file__).parents[1]


def until(look: Callable[[], T], what: str, within: float = PATIENCE) -> T:
    """Look until there is something to see, and return it."""
    give_up = time.monotonic() + within
    while not (seen := look()):
        assert time.monotonic() < give_up, f"not within {within} s: {what}"
        time.sleep(0.02)
    return seen


class WorkerProcess:
    """A worker in a process of its own, or a supervisor with its workers."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, output: Path) -> None:
        self._process = process
        self._log = log
        self._output = output
        self.pid = process.pid

    def events(self, name: str | None, **fields: object) -> list[dict[str, Any]]:
        """Return the log's lines of an event, or of all, whose fields say so."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        logged = [json.loads(line) for line in lines if line.endswith("}")]
        return [
            line
            for line in logged
            if name in (None, line["event"]) and all(line.get(key) == fields[key] for key in fields)
        ]

    def event(self, name: str, within: float = PATIENCE, **fields: object) -> dict[str, Any]:
        """Wait for an event, and return its first line."""
        return self._until(lambda: self.events(name, **fields), f"{name} {fields}", within)[0]

    def output(self) -> str:
        """Return all that the process has said, as one line: it may have been wrapped anywhere."""
        return " ".join(self._output.read_text().split())

    def log_size(self) -> int:
        """Return how many bytes the worker has logged."""
        return self._log.stat().st_size

    def crew(self, count: int) -> dict[int, str]:
        """Wait until so many workers below a supervisor have started; return their ids by pid."""
        started = self._until(
            lambda: len(found := self.events("worker.started")) >= count and found,
            f"{count} workers",
            PATIENCE,
        )
        ids = [str(line["worker_id"]) for line in started or ()]
        return {int(each.rsplit(":", 2)[1]): each for each in ids}

    def started(self) -> str:
        """Wait until the worker serves, and return its id."""
        return str(self.event("worker.started")["worker_id"])

    def ended(self, within: float = PATIENCE) -> int:
        """Wait for the end of the process, and return its exit code."""
        try:
            return self._process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {within} s: {self._story()}") from None

    def is_running(self) -> bool:
        """Say whether the process has not ended."""
        return self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def freeze(self) -> None:
        """Stop the process, wherever it is, and make sure that it stands still."""
        self.send(signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)

    def thaw(self) -> None:
        """Let the process go on."""
        self.send(signal.SIGCONT)

    def kill(self) -> None:
        """End the process as a crash does, and make sure that it is gone."""
        self._process.kill()
        self._process.wait()

    def _until(self, look: Callable[[], T], what: str, within: float) -> T:
        def look_or_die() -> T:
            seen = look()
            assert seen or self.is_running(), f"ended before {what}: {self._story()}"
            return seen

        return until(look_or_die, what, within)

    def _story(self) -> str:
        log = self._log.read_text() if self._log.exists() else ""
        return f"{log[-3_000:]}\n{self._output.read_text()[-3_000:]}"


class Yard(ABC):
    """A store with everything around it; `close` leaves no process behind."""

    def __init__(self, directory: Path, url: str, *, workers_url: str | None = None) -> None:
        self.directory = directory
        self.url = url
        self.workers_url = workers_url or url
        """Where workers find the store: mostly the same, or by way of a network that breaks."""
        self.ledger = Ledger(directory / "ledger")
        self.app = Windlass(url)
        self._loop = asyncio.Runner()
        self._processes: list[subprocess.Popen[bytes]] = []

    def close(self) -> None:
        """Kill every child, frozen or not, and let go of the store."""
        for process in self._processes:
            family = [process.pid, *descendants(process.pid)]
            for pid in family:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()
        self.call(self.app.aclose())
        self._loop.close()

    # -- processes -----------------------------------------------------------------------------

    def worker(
        self,
        *,
        name: str = "",
        app: str = "app",
        patches: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
        clock: float = 0.0,
        **settings: object,
    ) -> WorkerProcess:
        """Start a worker process with a short lease.

        `patches` names what it does otherwise, like
        `windlass.store.sqlite.findings:_LARGE_WAL_BYTES`;
        `clock` says by how many seconds its clock is wrong.
        """
        number = len(self._processes)
        log = self.directory / f"log-{number}"
        told = {
            "log": str(log),
            "app": app,
            "name": name,
            "patches": dict(patches or {}),
            "clock": clock,
            "settings": {"lease": f"{LEASE}s", "poll_interval": "0.1s", "threads": 2, **settings},
        }
        process, output = self.python("serve_worker.py", json.dumps(told), **(environ or {}))
        return WorkerProcess(process, log, output)

    def fleet(
        self,
        *flags: str,
        app: str = "app",
        environ: Mapping[str, str] | None = None,
        before: str = "",
        patches: Mapping[str, object] | None = None,
        **settings: str,
    ) -> WorkerProcess:
        """Start a supervisor as people do, by the command line, with short leases.

        `before` is Python that its process runs first; `patches` hold for it and for its workers.
        """
        told = {"lease": f"{LEASE}s", "poll_interval": "0.1s", "threads": "2", **settings}
        given = [f"--{name.replace('_', '-')}={value}" for name, value in told.items()]
        if patches:
            before = f"from tests.torture.programs.patches import *; patch_as_told()\n{before}"
        start = ("-c", f"{before}\nfrom windlass.cli import main\nmain()") if before else None
        process, output = self.run(
            *(start or ("-m", "windlass")),
            *("worker", f"tests.torture.programs.{app if ':' in app else f'handlers:{app}'}"),
            *("--log-format=json", "--log-level=debug", *given, *flags),
            **{VARIABLE: json.dumps(patches or {}), **(environ or {})},
        )
        return WorkerProcess(process, output, output)

    def python(
        self, script: str, *args: str, **environ: str
    ) -> tuple[subprocess.Popen[bytes], Path]:
        """Start a script of this directory, and return where its output goes."""
        return self.run(str(PROGRAMS / script), *args, **environ)

    def windlass(self, *args: object) -> str:
        """Run a command as an operator does, and return what it says."""
        process, output = self.run("-m", "windlass", *map(str, args))
        assert process.wait(PATIENCE) == 0, output.read_text()
        return output.read_text()

    def run(self, *args: str, **environ: str) -> tuple[subprocess.Popen[bytes], Path]:
        """Start Python with arguments, and return where its output goes.

        A variable that is empty is taken away.
        """
        output = self.directory / f"output-{len(self._processes)}"
        told = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(SOURCES), str(ROOT)]),
            "TORTURE_YARD": str(self.directory),
            "WINDLASS_URL": self.workers_url,
            **environ,
        }
        with output.open("wb") as stream:
            process = subprocess.Popen(
                [sys.executable, *args],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                env={name: value for name, value in told.items() if value},
            )
        self._processes.append(process)
        return process, output

    def open_gate(self, gate: str) -> None:
        """Let the handlers go on that wait for a gate."""
        (self.directory / f"gate-{gate}").touch()

    # -- jobs ----------------------------------------------------------------------------------

    def producer(self, kind: str, **options: Any) -> Producer[[dict[str, Any]], Any]:
        """Return a producer as a program has it that does not import the handler."""
        return self.app.producer(Kind(kind, dict[str, Any])).using(**options)

    def enqueue(self, kind: str, **payload: object) -> UUID:
        """Enqueue a job as a program does that does not import its handler."""
        return self.producer(kind).enqueue(payload).id

    def enqueue_many(self, kind: str, count: int, **payload: object) -> list[UUID]:
        """Enqueue many jobs alike."""
        producer = self.producer(kind)
        handles = self.app.enqueue_many([producer.draft(payload) for _ in range(count)])
        return [handle.id for handle in handles]

    def job(self, job: UUID) -> Job:
        """Return a job as the store has it."""
        return self.call(self.app.handle(job).ainfo())

    def settled(self, job: UUID, *states: State, within: float = PATIENCE) -> Job:
        """Wait until a job is in a state, any finished one unless told, and return it."""
        wanted = states or (State.COMPLETED, State.DEAD, State.CANCELLED)
        what = f"job {job} in {[state.value for state in wanted]}"
        until(lambda: self.job(job).state in wanted, what, within)
        return self.job(job)

    def states(self) -> dict[State, int]:
        """Count the jobs by state."""
        counts = self.call(self.app.store.counts(most=10**9))
        return {each.state: each.count for each in counts}

    def begun(self, job: UUID) -> int:
        """Wait until a handler has begun with a job, and return the process it runs in."""
        return until(lambda: self.ledger.entries("start", job), f"a run of {job}")[0].pid

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the app or its store."""
        return self._loop.run(work)

    # -- leases --------------------------------------------------------------------------------

    def workers(self) -> list[WorkerRecord]:
        """Return the workers as the store has them."""
        return self.call(self.app.store.workers())

    def seasoned(self, *workers: str) -> None:
        """Wait until workers have kept their leases for so long that they may rescue."""
        until(lambda: all(map(self._is_seasoned, workers)), f"the right of {workers} to rescue")

    def lapsed(self, worker: str) -> None:
        """Wait until a worker's lease has run out, and somebody has ended it."""
        until(lambda: self._ended(worker), f"the end of the lease of {worker}")

    # -- in which yards differ -----------------------------------------------------------------

    @abstractmethod
    def freeze(self, worker: WorkerProcess) -> None:
        """Stop a worker, at a moment at which it does not keep everybody else from the store."""

    @abstractmethod
    def charged(self) -> int:
        """Count the jobs that were charged a failure or a crash."""

    @abstractmethod
    def _is_seasoned(self, worker: str) -> bool:
        """Say whether a worker has renewed for a whole lease."""

    @abstractmethod
    def _ended(self, worker: str) -> bool:
        """Say whether a worker's lease was ended."""
