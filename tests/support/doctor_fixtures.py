"""Owns the app whose jobs wait for every reason that there is, and how commands are followed."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from windlass.core.jobs.states import FINISHED, State
from windlass.core.why.reason import Cause
from windlass.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from tests.cli.conftest import Shell, Start

PROMPT = 60.0
"""Seconds within which whatever is prompt has happened, also on a machine that has much to do."""
CLINIC = """
import asyncio
import sys
import time
from pathlib import Path

from windlass import Breaker, Context, PermanentError, Retry, RetryAfter, Snooze, Windlass

app = Windlass(redact=[])
app.limit("x-ray", concurrency=1)
app.limit(queue="surgery", concurrency=1)


def is_open(gate):
    return Path(gate).exists()


@app.job
async def treat(patient: str = "") -> str:
    return patient


@app.job
async def operate(gate: str = "go") -> None:
    while not is_open(gate):
        await asyncio.sleep(0.02)


@app.job
def measure(gate: str = "go") -> None:
    while not is_open(gate):
        time.sleep(0.02)


@app.job(concurrency=1)
async def scan(gate: str = "go") -> None:
    while not is_open(gate):
        await asyncio.sleep(0.02)


@app.job(limit="x-ray")
async def expose(gate: str = "go") -> None:
    while not is_open(gate):
        await asyncio.sleep(0.02)


@app.job(rate="1/h")
async def bill() -> None:
    pass


@app.job(isolate=True)
def dissect(gate: str = "go") -> None:
    while not is_open(gate):
        time.sleep(0.02)


@app.job(key="patient", ordered=True)
async def visit(patient: str, gate: str = "go") -> None:
    while not is_open(gate):
        await asyncio.sleep(0.02)


@app.job(max_retries=3)
async def relapse(ctx: Context) -> None:
    if not ctx.job.failures:
        raise RetryAfter("1h")


@app.job
async def postpone(ctx: Context) -> Snooze | None:
    return Snooze("1h") if not ctx.job.history else None


@app.job(key="patient", ordered=True, max_retries=3)
async def dose(ctx: Context, patient: str, fails: bool = False) -> None:
    if fails and not ctx.job.failures:
        raise RetryAfter("1h")


@app.job
async def consult(ctx: Context) -> None:
    await ctx.wait_for("answer", timeout="1d")


# The retry comes late, so that the job that is sick is not the one that probes.
@app.job(
    breaker=Breaker("lab", failures=1, cooldown="1h", on=[OSError]),
    retry=Retry(max_retries=9, initial="1h"),
)
async def test_blood(sick: bool = False) -> None:
    if sick:
        raise OSError("the lab is closed")


@app.job(max_retries=0)
async def heal(gate: str = "cured") -> None:
    if not is_open(gate):
        raise PermanentError("no cure")


async def admit() -> None:
    pass


async def discharge() -> None:
    if not is_open("bed"):
        raise RetryAfter("1h")


@app.job(max_retries=0)
async def stay(ctx: Context) -> None:
    await ctx.step("admit", admit, undo=discharge)
    raise PermanentError("no cure")


def chain():
    flow = app.flow("visit")
    flow.add(treat.draft(), after=[flow.add(treat.draft())])
    return flow


def undone():
    flow = app.flow("visit", on_failure="compensate")
    admitted = flow.add(treat.draft(), undo=heal.draft())
    flow.add(heal.draft("never"), after=[admitted])
    return flow


if __name__ == "__main__":
    flow = {"chain": chain, "undone": undone}[sys.argv[1]]()
    flow.enqueue()
    print(flow.id)
"""


class Ward:
    """Jobs of the clinic, workers for them, and commands that are typed as they were told."""

    def __init__(self, shell: Shell, start: Start) -> None:
        self.shell = shell
        self._start = start
        self.workers: list[subprocess.Popen[str]] = []
        self.lease = "30s"
        """Of workers that are started from now on."""
        shell.write("clinic.py", CLINIC)
        shell.ok("migrate")

    def enqueue(self, kind: str, payload: str = "{}", *options: str) -> UUID:
        """Enqueue a job."""
        sys.modules.pop("clinic", None)  # As in a new process.
        told = self.shell.ok("enqueue", kind, payload, "--app", "clinic:app", "--json", *options)
        sys.modules.pop("clinic", None)
        return UUID(told.json["id"])

    def enqueue_flow(self, name: str) -> UUID:
        """Enqueue a flow, and return the id of its own job."""
        said = self.shell.ended(self._start("clinic.py", name))
        assert said.code == 0, said.err
        return UUID(said.out.strip())

    def work(self, *flags: str, app: str = "clinic:app") -> subprocess.Popen[str]:
        """Start a worker, and wait until it serves."""
        before = self._alive()
        quiet = ("--log-level", "critical", "--poll-interval", "100ms", "--lease", self.lease)
        self.workers.append(self._start("-m", "windlass", "worker", app, *flags, *quiet))
        until(lambda: self._alive() > before)
        return self.workers[-1]

    def open(self, gate: str) -> None:
        """Let those go on who wait before a gate."""
        self.shell.write(gate, "")

    def why(self, job: object, *flags: str) -> list[dict[str, Any]]:
        """Ask, as one who has no app at hand, why a job does not run."""
        found: list[dict[str, Any]] = self.shell.ok("why", job, "--json", *flags).json["reasons"]
        return found

    def told(self, job: UUID, cause: Cause) -> dict[str, Any]:
        """Wait until a job is told a reason, and return that."""
        found: list[dict[str, Any]] = []

        def is_told() -> bool:
            found[:] = [each for each in self.why(job) if each["cause"] == cause.value]
            return bool(found)

        until(is_told, lambda: f"{cause} is not told: {self.why(job)}")
        return found[0]

    def follow(self, remedy: str) -> None:
        """Type the command that was told; of one that only leads on, those that it tells."""
        before, windlass, command = remedy.partition("windlass ")
        assert windlass, f"there is no command in {remedy!r} ({before!r})"
        words = [_filled(word) for word in shlex.split(command)]
        if words[0] == "worker":
            self.work(*words[2:], app=words[1])
        elif words[0] == "why":
            for reason in self.why(words[1]):
                if reason["remedy"]:
                    self.follow(reason["remedy"])
        else:
            self.shell.ok(*words)

    def breakers(self) -> list[str]:
        """Return the state of each breaker that is known."""
        listed = self.shell.ok("breakers", "list", "--json").json["breakers"]
        return [each["state"] for each in listed]

    def state(self, job: UUID) -> State:
        """Return the state that a job is in."""
        return self.shell.job(job).state

    def reaches(self, job: UUID, *states: State) -> None:
        """Wait until a job is in one of some states."""
        until(
            lambda: self.state(job) in states,
            lambda: f"{job} is {self.state(job)}: {self.why(job)}",
        )

    def runs(self, job: UUID) -> None:
        """Wait until a job runs, or has run."""
        self.reaches(job, State.RUNNING, *FINISHED)
        assert self.state(job) in (State.RUNNING, State.COMPLETED), self.why(job)

    def _alive(self) -> int:
        store = SqliteStore(self.shell.file)
        return sum(each.alive for each in self.shell.store(store.workers(), store))


def children_of(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(each) for each in listed.split()]


def until(check: Callable[[], bool], told: Callable[[], str] = lambda: "not so") -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + PROMPT
    while not check():
        assert time.monotonic() < deadline, told()
        time.sleep(0.1)  # A look is a command, and takes as much as what it looks for.


def _filled(word: str) -> str:
    """Fill in what the reader of a command fills in."""
    places = {
        "MODULE:ATTR": "clinic:app",
        "MODULE": "clinic",
        "N": "8",
        "N/s": "100/s",
        "JSON": "{}",
    }
    return places.get(word, word)
