"""`make soak`: its rounds, its figures, and a short one to its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.worker_processes import until
from tests.torture.programs.families import alive, descendants
from tools import soak
from tools.soak import Plan, Results, Round, results_of
from windlass.chaos.observation.memory import WorkerMemory
from windlass.chaos.options import STORES

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def made(store: str = "sqlite", *memory: tuple[int, int], **others: Any) -> Round:
    """Return the figures of a round with ten jobs and two faults."""
    fields: dict[str, Any] = {"seed": 1, "started_at": NOW, "seconds": 60.0, "broken": ()}
    fields |= {"jobs": 10, "runs": 11, "faults": 2, **others}
    workers = [WorkerMemory(pid=1, seconds=60.0, first=f, last=last) for f, last in memory]
    return Round(store=store, memory=tuple(workers), **fields)


def plan(seconds: float, stores: tuple[str, ...] = STORES) -> Plan:
    return Plan(seconds=seconds, stores=stores, rate=100.0, fault_seconds=5.0, seed=7)


def test_stores_come_in_turn_with_seeds_of_their_own() -> None:
    options = [plan(7200.0).options(number) for number in range(4)]

    assert [each.store for each in options] == ["sqlite", "postgres", "redis", "sqlite"]
    assert [each.seed for each in options] == [7, 8, 9, 10]
    assert (options[0].seconds, options[0].jobs, options[0].faults) == (600.0, 60_000, 120)
    assert options[0].spared == 1


@pytest.mark.parametrize(("seconds", "each"), [(7200.0, 600.0), (900.0, 300.0), (1.0, 10.0)])
def test_a_short_soak_has_shorter_rounds_and_every_store(seconds: float, each: float) -> None:
    assert plan(seconds).round_seconds == each


def test_figures_are_added_up_for_each_store_and_for_all() -> None:
    rounds = [made("redis", (100, 102)), made("sqlite", (50, 50)), made("redis", (100, 104))]
    totals = {total.name: total for total in results_of(rounds).totals}

    assert list(totals) == ["sqlite", "redis", "all"]
    assert (totals["redis"].rounds, totals["redis"].jobs, totals["redis"].faults) == (2, 20, 4)
    assert (totals["redis"].first, totals["redis"].last) == (100, 103)
    assert (totals["all"].jobs, totals["all"].workers) == (30, 3)


@pytest.mark.parametrize(("last", "word"), [(105, "flat: "), (90, "flat: "), (115, "GROWS: ")])
def test_memory_is_flat_up_to_a_tenth(last: int, word: str) -> None:
    results = results_of([made("redis", (100, last))])

    assert word in list(soak.lines(results))[-1]
    assert results.totals[-1].is_flat == (word == "flat: ")


@pytest.mark.parametrize(("megabytes", "is_flat"), [(110, True), (120, False)])
def test_workers_on_sqlite_may_fill_their_page_caches_and_no_more(
    megabytes: int, is_flat: bool
) -> None:
    results = results_of([made("sqlite", (46_000_000, megabytes * 1_000_000))])

    assert [total.is_flat for total in results.totals] == [is_flat, is_flat]


def test_a_broken_law_is_named_in_the_table() -> None:
    results = results_of([made(), made(broken=("outcomes",))])

    assert "| outcomes |" in list(soak.lines(results))[-1]


def test_a_store_whose_memory_was_not_seen_is_not_flat_and_is_named_with_the_remedy() -> None:
    results = results_of([made("sqlite"), made("redis", (100, 100))])

    assert [total.is_flat for total in results.totals] == [False, True, True]
    assert list(soak.lines(results))[2].endswith("| not seen |")
    (line,) = soak.unseen(results)
    assert "sqlite" in line
    assert "TIME=" in line


@pytest.mark.parametrize(
    ("memory", "code"), [((), 1), (((100, 100),), 0), (((100, 200),), 1)], ids=repr
)
def test_the_exit_code_is_0_only_if_memory_was_seen_and_is_flat(
    memory: tuple[tuple[int, int], ...],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    results = results_of([made("redis", *memory)])
    monkeypatch.setattr(soak, "soak", lambda *_: results)

    assert soak.main(["--store", "redis", "--results", str(tmp_path / "soak.json")]) == code
    assert ("was not seen" in capsys.readouterr().out) == (not memory)


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_soak_that_is_terminated_leaves_no_process_and_no_mount(tmp_path: Path) -> None:
    """Prevents a small disk that stays mounted, and a server that runs on."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, "tools/soak.py", "--store", "sqlite", "--results", str(tmp_path / "r")],
        cwd=Path(soak.__file__).parents[1],
        env={"TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        text=True,
    )
    until(lambda: len(descendants(process.pid)) > 5, "the processes of the soak")
    below = descendants(process.pid)
    process.send_signal(signal.SIGTERM)

    said, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "stopped" in said
    until(lambda: not any(map(alive, below)), "the end of all processes")
    assert list(temporary.iterdir()) == []


@pytest.mark.long
def test_a_short_soak_writes_its_figures(tmp_path: Path) -> None:
    file = tmp_path / "build" / "soak.json"
    words = ["--time", "1s", "--store", "sqlite", "--rate", "20", "--results", str(file)]
    soak.main([*words, "--fault-every", "5s"])

    results = msgspec.json.decode(file.read_bytes(), type=Results)
    (only,) = results.rounds
    assert only.store == "sqlite"
    assert only.faults <= 2
    # A machine that is busy with other tests may recover late.
    assert set(only.broken) <= {"recovery"}
    assert only.jobs >= 100
    if os.path.exists("/proc/self/statm"):  # noqa: PTH110
        assert results.totals[-1].workers >= 2
