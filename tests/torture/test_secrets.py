"""Secrets that are planted everywhere are found nowhere that anybody looks."""

from __future__ import annotations

import os
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.worker_processes import SOURCES, until
from tests.torture.programs.families import descendants
from windlass import Secret, Windlass

pytestmark = pytest.mark.long

PLANTED = "planted-4111-never-shown"
PASSWORD = "planted-hunter2"
SHOP = """
import logging, os, signal, sys, time
from pathlib import Path
from windlass import Context, Secret, SyncContext, Windlass

app = Windlass()


def betray(ctx, card, password):
    ctx.log.info("paying", card=card, revealed=card.reveal(), password=password)
    logging.getLogger("shop").warning("card %s, password=%s", card.reveal(), password)
    url = f"https://shop:{password}@pay.example/?card={card.reveal()}"
    raise RuntimeError(f"declined at {url}: {card.reveal()!r} {dict(password=password)}")


@app.job(max_retries=0)
async def charge(ctx: Context, card: Secret[str], password: str) -> None:
    Path("began").touch()
    while not Path("looked").exists():
        time.sleep(0.02)
    betray(ctx, card, password)


@app.job(max_retries=0, isolate=True)
def charge_apart(ctx: SyncContext, card: Secret[str], password: str) -> None:
    betray(ctx, card, password)


@app.job(max_retries=0, isolate=True)
def crash(card: Secret[str], password: str) -> None:
    logging.getLogger("shop").warning("dying of %s, password=%s", card.reveal(), password)
    os.kill(os.getpid(), signal.SIGKILL)
"""


class Place:
    """A directory with an app, and the commands that are run in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "shop.py").write_text(SHOP)
        key = b64encode(os.urandom(32)).decode()
        self.environ = {
            "WINDLASS_ENCRYPTION_KEYS": key,
            "WINDLASS_LISTEN_URL": f"postgresql://ann:{PASSWORD}@nowhere/db",
        }
        self.app = Windlass(f"sqlite:///{directory / 'windlass.db'}", encryption_keys=key)

    def enqueue(self, kind: str) -> str:
        @self.app.job(name=kind)
        async def stands_for_it(card: Secret[str], password: str) -> None: ...

        headers = {"authorization": f"Bearer {PASSWORD}"}
        card = Secret(PLANTED)
        return str(stands_for_it.using(headers=headers).enqueue(card=card, password=PASSWORD).id)

    def start(self, *args: str) -> subprocess.Popen[str]:
        kept = {name: text for name, text in os.environ.items() if "WINDLASS" not in name}
        path = os.pathsep.join([str(SOURCES), os.environ.get("PYTHONPATH", "")])
        return subprocess.Popen(
            [sys.executable, "-m", "windlass", *args],
            cwd=self.directory,
            env={**kept, "PYTHONPATH": path, "COLUMNS": "400", **self.environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *args: str) -> tuple[str, str]:
        return self.start(*args).communicate(timeout=60)


def command_lines(pid: int) -> str:
    """What `ps` shows of a process and those below it."""
    lines = [Path(f"/proc/{each}/cmdline").read_bytes() for each in (pid, *descendants(pid))]
    return b"\n".join(lines).decode()


def last_words(place: Place, job_id: str) -> str:
    """What is stored of the log of a process that died."""
    error = place.app.handle(job_id).info().error
    assert error is not None
    return error.traceback


def shown(place: Place, ids: list[str], form: list[str]) -> Iterator[str]:
    """What the command line shows of jobs."""
    for job_id in ids:
        told = "".join(place.run("dead", "show", job_id, *form))
        assert "Secret(***)" in told
        yield told
    for command in (["jobs", "list"], ["dead", "groups"], ["doctor"]):
        yield from place.run(*command, *form)


@pytest.mark.timeout(300)  # It starts a dozen processes, one after the other.
@pytest.mark.parametrize("form", ["json", "console"])
def test_planted_secrets_are_shown_nowhere(tmp_path: Path, form: str) -> None:
    """Case 50. Prevents a secret in a log, a listing, the process list, or a stored error."""
    place = Place(tmp_path)
    place.environ = {**place.environ, "WINDLASS_LOG_FORMAT": form, "WINDLASS_LOG_LEVEL": "debug"}
    ids = [place.enqueue(kind) for kind in ("charge", "charge_apart", "crash")]
    with place.start("worker", "--app", "shop:app", "--burst") as worker:
        until((tmp_path / "began").exists, "the first job has begun")
        seen = command_lines(worker.pid)
        (tmp_path / "looked").touch()
        seen += "".join(worker.communicate(timeout=90))
    assert worker.returncode == 0, seen
    assert "RuntimeError" in seen
    seen += "".join(shown(place, ids, ["--json"] if form == "json" else []))
    assert "dying of ***, password=***" in last_words(place, ids[-1])
    assert PLANTED not in seen
    assert PASSWORD not in seen
    stored = b"".join(file.read_bytes() for file in tmp_path.glob("windlass.db*"))
    assert PLANTED.encode() not in stored
    plain = f'"password":"{PASSWORD}"'.encode(), f"Bearer {PASSWORD}".encode()
    for expected in plain:  # Said to be no secret, so stored; but in no error.
        stored = stored.replace(expected, b"")
    assert PASSWORD.encode() not in stored
