"""The view of a run: lines from the start on, with the time of each phase."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from windlass.chaos.run import View
from windlass.chaos.screen import progress
from windlass.core.jobs.states import State


def shown(phase: str, seconds: float) -> str:
    file = io.StringIO()
    counts = {State.COMPLETED: 1_200, State.DEAD: 2, State.PENDING: 7}
    view = View(
        phase=phase, seconds=seconds, workers=3, faults=4, planned=6, current="", counts=counts
    )
    with progress(Console(file=file, width=120), 40.0) as show:
        show(view)
    return file.getvalue().strip()


@pytest.mark.parametrize(
    ("phase", "seconds", "beginning"),
    [
        ("start", 34.2, "start  34 s  3 workers serve"),
        ("storm", 12.0, "storm  12 of 40 s  faults 4/6  1,202 done  7 open  2 dead"),
        ("storm", 40.4, "storm  40 of 40 s  "),
        ("storm", 83.0, "storm  83 s, until all faults are thrown  faults 4/6"),
        ("drain", 5.0, "drain  5 s  faults 4/6"),
    ],
)
def test_each_phase_says_how_long_it_has_lasted(phase: str, seconds: float, beginning: str) -> None:
    assert shown(phase, seconds).startswith(beginning)
