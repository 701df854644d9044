"""Who waits for the end of a worker outlasts whoever is nearer to it."""

from __future__ import annotations

from datetime import timedelta

from windlass.process.grace_periods import DRAIN_GRACE, SUPERVISOR_GRACE, WORKER_GRACE

ROOM = timedelta(seconds=2)
"""What a process needs to write its last words and to be gone, on a machine that is busy."""


def test_a_worker_ends_itself_before_it_is_killed_and_drain_outlasts_both() -> None:
    """Prevents: killed before it could say why it is stuck, or called stuck while being killed."""
    assert timedelta(0) < WORKER_GRACE
    assert WORKER_GRACE + ROOM <= SUPERVISOR_GRACE
    assert SUPERVISOR_GRACE + ROOM <= DRAIN_GRACE
