"""Laws of the race on Redis: every scenario runs, and every bar is held against the right ones."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.entrants import Entrant
from benchmarks.peers.redis_peer import serve_in_thread
from benchmarks.redis import races
from benchmarks.redis.__main__ import SCENARIOS, make_field, race
from benchmarks.redis.field import Field, Sizes
from benchmarks.redis.server import arena
from benchmarks.report import Race, Score
from benchmarks.timings import Filled

TINY = Sizes(
    rounds=1,
    jobs=300,
    python_jobs=100,
    singles=40,
    latencies=5,
    few=10,
    many=100,
    payloads=1_000_000,
    contentions=5,
)


@pytest.fixture
def field(tmp_path: Path) -> Iterator[Field]:
    with arena(tmp_path) as place:
        yield make_field(place, TINY, [], Console(file=io.StringIO()))


@pytest.mark.timeout(300)  # Up to fourteen processes, one after another, on a busy machine.
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_scenario_runs_from_end_to_end_without_peers(field: Field, scenario: str) -> None:
    report = race(field, [scenario], {"server": field.arena.settings()})
    assert report.races
    assert not report.missing
    assert all(figure > 0 for each in report.races for figure in each.ours.rounds)
    assert "Valkey" in report.place["server"]


def test_a_contender_that_fails_is_missing_and_the_others_go_on(field: Field) -> None:
    broken = Entrant(name="broken", command=lambda url: ["false", url])
    ours, theirs = field.take_turns("drain", [(it, lambda _: 1.0) for it in (field.ours, broken)])
    assert (ours.missing, theirs.missing) == ("", "")

    def measure(entrant: Entrant) -> float:
        with field.arena.room(entrant):
            return 1.0

    ours, theirs = field.take_turns("drain", [(it, measure) for it in (field.ours, broken)])
    assert ours.rounds == [1.0]
    assert theirs.rounds == []
    assert "died" in theirs.missing


def bars(it: Race) -> dict[str, float]:
    return {rival.score.name: rival.bar for rival in it.rivals if rival.bar is not None}


def test_the_drain_is_held_against_bullmq_and_the_best_peer_in_python(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = {"BullMQ": 10_000.0, "slow": 100.0, "fast": 4_000.0}

    def drained(_: Field, entrant: Entrant) -> Filled:
        figure = rates.get(entrant.name, 30_000.0)
        return Filled(bulk=figure, drain=figure, cut_off=False)

    monkeypatch.setattr(races, "_fill_and_drain", drained)
    crowd = Field(
        arena=field.arena,
        sizes=TINY,
        progress=field.progress,
        ours=field.ours,
        tuned=field.tuned,
        peers=[Entrant(name=name) for name in rates],
    )
    default, tuned, bulk = races.drain(crowd)
    assert bars(default) == {"BullMQ": 2.0, "fast": 8.0}
    assert default.is_lost  # 30,000 are 7.5 times 4,000.
    assert bars(tuned) == {"BullMQ": 3.5}
    assert bars(bulk) == {"BullMQ": 3.5}


def test_there_is_no_best_peer_if_none_ran() -> None:
    assert races.best(races.DRAIN, [Score(name="gone", missing="no npm")]) is None


def test_a_worker_that_dies_in_its_thread_is_noticed() -> None:
    def run() -> None:
        raise OSError("no connection")

    with pytest.raises(OSError, match="no connection"):
        asyncio.run(serve_in_thread(run, lambda: None))
