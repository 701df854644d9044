"""A child finds its handler however the program around the worker was started, or says why not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import windlass
from windlass import Windlass

SOURCES = str(Path(windlass.__file__).parents[1])
APP = """
import asyncio, os
from windlass import Windlass

app = Windlass("sqlite:///jobs.db")

@app.job(isolate=True)
def where() -> int:
    return os.getpid()

async def main():
    worker = asyncio.create_task(app.arun_worker(isolated_processes=1))
    handle = await where.aenqueue()
    result = asyncio.create_task(handle.aresult("60s"))
    await asyncio.wait([worker, result], return_when=asyncio.FIRST_COMPLETED)
    print("elsewhere" if worker.done() is False and await result != os.getpid() else "?")
    worker.cancel()
    result.cancel()
    await asyncio.gather(worker, result, return_exceptions=True)
    if not worker.cancelled() and worker.exception():
        raise worker.exception()
    await app.aclose()
"""
GUARDED = f"{APP}\nif __name__ == '__main__':\n    asyncio.run(main())\n"
BARE = f"{APP}\nasyncio.run(main())\n"


def run(directory: Path, *arguments: str, told: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": SOURCES},
        input=told,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize("arguments", [("program.py",), ("-m", "program"), ("-m", "package.jobs")])
def test_handlers_may_be_in_the_program_itself(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "package").mkdir()
    for file in (tmp_path / "program.py", tmp_path / "package" / "jobs.py"):
        file.write_text(GUARDED)
    done = run(tmp_path, *arguments)
    assert (done.stdout, done.returncode) == ("elsewhere\n", 0), done.stderr


def test_a_program_that_starts_its_worker_when_it_is_imported_is_refused(tmp_path: Path) -> None:
    """Prevents a worker whose children start workers, which have children."""
    (tmp_path / "program.py").write_text(BARE)
    done = run(tmp_path, "program.py")
    assert done.returncode != 0
    assert "start the worker under `if __name__ == '__main__':`" in done.stderr


def test_a_program_without_a_file_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path, "-", told=BARE)
    assert done.returncode != 0
    assert "move the handlers into a module" in done.stderr


def test_the_command_line_finds_handlers_that_are_imported_besides(tmp_path: Path) -> None:
    """The app is not a module-level name here, and the handler is in another module."""
    (tmp_path / "shop.py").write_text(
        "from types import SimpleNamespace\nfrom windlass import Windlass\n"
        "shop = SimpleNamespace(app=Windlass())\n"
    )
    (tmp_path / "more.py").write_text(
        "import os\nfrom shop import shop\n\n@shop.app.job(isolate=True)\n"
        "def where() -> int:\n    return os.getpid()\n"
    )
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    command = ("-m", "windlass", "worker", "shop:shop.app", "--imports", "more", "--url", url)
    with subprocess.Popen(
        [sys.executable, *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": SOURCES},
        stderr=subprocess.PIPE,
        text=True,
    ) as worker:
        try:
            handle = _enqueue(url)
            assert handle.result(timeout="60s") != worker.pid
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(30) == 0
            assert worker.stderr is not None
            assert '"event": "job.started"' in worker.stderr.read()
        finally:
            worker.kill()


def _enqueue(url: str) -> windlass.Handle[object]:
    from windlass import Kind

    deadline = time.monotonic() + 30
    while True:
        try:
            return Windlass(url).producer(Kind("where", dict)).enqueue({})
        except windlass.StoreError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
