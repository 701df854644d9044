"""The supervisor starts and ends processes as the pulses of its workers demand."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.support.app_on_store import log_lines
from windlass.core.values.ranges import Bounds
from windlass.core.workers import WorkerPulse
from windlass.supervisor.process_scaler import ProcessScaler

BUSY: dict[str, Any] = {"slots": 10, "running": 10, "busy": 1.0, "waiting": True, "cpu": 0.05}
IDLE = WorkerPulse(slots=10)


def test_processes_follow_their_pulses_and_every_change_is_logged_with_its_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "windlass.scaler")
    scaler = ProcessScaler(Bounds(least=1, most=4), Bounds.of(10), now=0.0)
    present, seen = 1, []
    for now in range(1, 400):
        pulses = [WorkerPulse(**BUSY) if now < 60 else IDLE] * present
        decision = scaler.consider(present, pulses, now=float(now))
        if decision is not None:
            present = decision.target
            seen.append(present)
    assert seen == [2, 3, 4, 2, 1]
    steps = log_lines(caplog, "processes.scaled")
    assert [(step["from"], step["to"]) for step in steps] == [
        (1, 2),
        (2, 3),
        (3, 4),
        (4, 2),
        (2, 1),
    ]
    assert steps[0]["reason"] == "jobs are waiting and the process is fully used"
    assert steps[-1]["reason"] == "2 processes were nearly idle for 60s"


def test_a_worker_without_a_pulse_is_not_taken_for_idle() -> None:
    """While the store cannot be reached no pulse arrives, and no process is ended for that."""
    scaler = ProcessScaler(Bounds(least=1, most=4), Bounds.of(10), now=0.0)
    for now in range(200):
        assert scaler.consider(4, [], now=float(now)) is None
    assert scaler.consider(4, [IDLE] * 4, now=200.0) is None
    assert scaler.consider(4, [IDLE] * 4, now=258.0) is None
    assert scaler.consider(4, [IDLE] * 4, now=260.0) is not None
