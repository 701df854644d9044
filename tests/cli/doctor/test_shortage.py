"""Threads and children that are all in use are shown wherever slots are, with the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Shell, Start
from tests.support.doctor_fixtures import until

JOBS = """
import time
from pathlib import Path

from windlass import Windlass

app = Windlass()


@app.job
def wait(n: int) -> None:
    while not Path("go").exists():
        time.sleep(0.02)


@app.job(isolate=True)
def wait_alone(n: int) -> None:
    while not Path("go").exists():
        time.sleep(0.02)


if __name__ == "__main__":
    import sys
    kind = {"wait": wait, "wait_alone": wait_alone}[sys.argv[1]]
    app.enqueue_many([kind.draft(n) for n in range(60)])
"""


@pytest.mark.parametrize(
    ("kind", "pool", "words", "remedy"),
    [
        ("wait", "threads", "all 2 threads are in use", "--threads N"),
        (
            "wait_alone",
            "isolated_processes",
            "all 2 child processes are in use",
            "--isolated-processes N",
        ),
    ],
)
def test_every_command_that_shows_slots_says_what_is_short_and_what_helps(
    shell: Shell, start: Start, kind: str, pool: str, words: str, remedy: str
) -> None:
    """With 98 of 100 slots free all looked well, while 58 jobs waited for two threads."""
    (shell.directory / "shop.py").write_text(JOBS)
    enqueued = shell.ended(start("shop.py", kind))
    assert enqueued.code == 0, enqueued.err
    flag = "--isolated-processes" if pool == "isolated_processes" else "--threads"
    worker = start(*("-m", "windlass", "worker", "shop:app", flag, "2", "--log-level", "critical"))

    def stats() -> dict[str, object]:
        assert worker.poll() is None, worker.communicate()
        found: dict[str, object] = shell.ok("stats", "--json").json
        return found

    until(lambda: stats()[f"in_{pool}"] == 2 and bool(stats()["short"]), lambda: str(stats()))
    found = shell.ok("stats", "--json").json
    assert (found["busy"], found["slots"], found[pool], found[f"in_{pool}"]) == (2, 100, 2, 2)
    (short,) = found["short"]
    assert (short["pool"], short["kinds"], short["count"]) == (pool, [kind], 2)
    assert remedy in short["remedy"]
    (one,) = shell.ok("workers", "--json").json["workers"]
    assert (one[pool], one[f"in_{pool}"]) == (2, 2)
    assert [each["pool"] for each in one["short"]] == [pool]
    (warning,) = shell.ok("doctor", "shop:app", "--json").json["warnings"]
    assert words in warning["problem"]
    assert remedy in warning["remedy"]
    assert shell.ok("doctor", "shop:app").out.splitlines()[0].startswith("1 warning")
    for command in ("stats", "workers", "doctor"):
        said = shell.ok(command)
        assert words in " ".join((said.out + said.err).split())
        assert remedy in said.out + said.err
    Path(shell.directory, "go").touch()
    until(lambda: not stats()["short"])
