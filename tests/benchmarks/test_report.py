"""Laws of what a race comes to."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.report import Measure, Race, Report, Rival, Score, against_best, percentile

RATE = Measure(name="drain", unit="jobs/s")
WAIT = Measure(name="latency", unit="ms", lower_is_better=True)


def score(name: str, *rounds: float, missing: str = "") -> Score:
    return Score(name=name, rounds=rounds, missing=missing)


def race(ours: Score, theirs: Score, *, bar: float | None, measure: Measure = RATE) -> Race:
    return Race(measure=measure, ours=ours, rivals=[Rival(score=theirs, bar=bar)])


@pytest.mark.parametrize(("bar", "lost"), [(2.0, False), (2.1, True), (None, False)])
def test_a_bar_is_met_by_medians_that_are_so_many_times_better(
    bar: float | None, lost: bool
) -> None:
    it = race(score("ours", 1, 200, 900), score("theirs", 100, 100, 1), bar=bar)
    assert it.ratio(it.rivals[0]) == 2.0
    assert it.is_lost is lost


def test_less_waiting_is_better() -> None:
    assert not race(score("ours", 2), score("theirs", 3), bar=1.5, measure=WAIT).is_lost
    assert race(score("ours", 3), score("theirs", 2), bar=1, measure=WAIT).is_lost


def test_a_missing_worker_loses_no_job() -> None:
    it = race(score("ours", 1), score("theirs", missing="no npm"), bar=2)
    assert it.is_met(it.rivals[0]) is None
    assert not it.is_lost


def test_a_race_without_ours_is_lost() -> None:
    """Prevents: a store that does not start passes every bar."""
    assert race(score("ours", missing="broken"), score("theirs", 1), bar=1).is_lost
    assert race(score("ours", missing="broken"), score("ours too"), bar=1).is_lost


@pytest.mark.parametrize(("measure", "best"), [(RATE, "c"), (WAIT, "b")])
def test_only_the_best_peer_that_ran_sets_the_bar(measure: Measure, best: str) -> None:
    peers = [score("a", missing="gone"), score("b", 1), score("c", 3)]
    it = against_best(measure, score("ours", 2), peers, bar=1.1)
    assert [rival.score.name for rival in it.rivals if rival.bar] == [best]


def test_the_table_names_the_missing_peers_with_the_reason(tmp_path: Path) -> None:
    report = Report(
        title="a race", races=[race(score("ours", 1), score("[x]", missing="no [npm]"), bar=1)]
    )
    console = Console(record=True, file=io.StringIO())
    report.show(console)
    assert "[x] is missing: no [npm]" in console.export_text()
    report.write(tmp_path / "made" / "report.json")
    written = json.loads((tmp_path / "made" / "report.json").read_text())
    assert written["met"] is True
    assert written["races"][0]["rivals"][0]["missing"] == "no [npm]"


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(number) for number in range(100, 0, -1)]
    assert percentile(values, 0.99) == 99
    assert percentile([7.0], 0.99) == 7
