"""Owns the plan of a storm: which faults come when, for how long, and to whom, by a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

_FIRST, _LAST = 0.08, 0.92
"""The part of the storm's time in which faults begin: before and after it, work is undisturbed."""


class FaultKind(StrEnum):
    """What can be done to processes, to the network and to the server."""

    KILL_WORKER = "kill-worker"
    KILL_SUPERVISOR = "kill-supervisor"
    KILL_CHILD = "kill-child"
    STOP_WORKER = "stop-worker"
    TERMINATE_WORKER = "terminate-worker"
    TERMINATE_SUPERVISOR = "terminate-supervisor"
    KILL_PRODUCER = "kill-producer"
    STALL_NETWORK = "stall-network"
    CUT_NETWORK = "cut-network"
    RESET_NETWORK = "reset-network"
    DELAY_NETWORK = "delay-network"
    TERMINATE_BACKENDS = "terminate-backends"
    RESTART_SERVER = "restart-server"
    FAIL_OVER = "fail-over"
    FILL_DISK = "fill-disk"
    STEP_CLOCK = "step-clock"


DESCRIPTIONS: dict[str, str] = {
    FaultKind.KILL_WORKER: "SIGKILL to a worker process",
    FaultKind.KILL_SUPERVISOR: "SIGKILL to a supervisor, which is started again",
    FaultKind.KILL_CHILD: "SIGKILL to a child process of a worker",
    FaultKind.STOP_WORKER: "SIGSTOP to a worker, up to twice its lease, then SIGCONT",
    FaultKind.TERMINATE_WORKER: "SIGTERM to a worker process",
    FaultKind.TERMINATE_SUPERVISOR: "SIGTERM to a supervisor, which is started again",
    FaultKind.KILL_PRODUCER: "SIGKILL to a producer, whose place another takes",
    FaultKind.STALL_NETWORK: "the network passes nothing on, and later everything",
    FaultKind.CUT_NETWORK: "connections are reset, and new ones refused for a while",
    FaultKind.RESET_NETWORK: "every connection is reset once",
    FaultKind.DELAY_NETWORK: "the network delays everything",
    FaultKind.TERMINATE_BACKENDS: "every session of the database is terminated",
    FaultKind.RESTART_SERVER: "the server is killed and started again",
    FaultKind.FAIL_OVER: "a replica is promoted, and the primary killed a moment later",
    FaultKind.FILL_DISK: "the disk of the store is full for a while",
    FaultKind.STEP_CLOCK: "the clock of the store is set forward or back, and stays there",
}
PROCESS_FAULTS = (
    FaultKind.KILL_WORKER,
    FaultKind.KILL_SUPERVISOR,
    FaultKind.KILL_CHILD,
    FaultKind.STOP_WORKER,
    FaultKind.TERMINATE_WORKER,
    FaultKind.TERMINATE_SUPERVISOR,
    FaultKind.KILL_PRODUCER,
)
"""Faults that need nothing but signals."""
NETWORK_FAULTS = (
    FaultKind.STALL_NETWORK,
    FaultKind.CUT_NETWORK,
    FaultKind.RESET_NETWORK,
    FaultKind.DELAY_NETWORK,
)
_LASTING = {
    FaultKind.STOP_WORKER: (0.3, 2.0),
    FaultKind.STALL_NETWORK: (0.2, 1.6),
    FaultKind.CUT_NETWORK: (0.1, 1.2),
    FaultKind.DELAY_NETWORK: (0.5, 1.0),
    FaultKind.RESTART_SERVER: (0.0, 0.5),
    FaultKind.FAIL_OVER: (0.0, 1.0),
    FaultKind.FILL_DISK: (0.3, 1.0),
}
"""How many leases a fault lasts; those that are not here are over at once."""


class Fault(Struct, frozen=True, kw_only=True):
    """A fault to be thrown: its beginning in seconds since the storm began, and its length."""

    number: int
    kind: FaultKind
    at: float
    lasting: float
    pick: float
    """A number from 0 to 1 that chooses the victim among those that there are."""


def plan_faults(
    seed: int, *, count: int, seconds: float, kinds: Sequence[FaultKind], lease: float
) -> tuple[Fault, ...]:
    """Return the faults of a storm, in their order; every kind comes before one comes twice."""
    if not kinds or count <= 0:
        return ()
    dice = random.Random(seed)  # noqa: S311 - a storm must be repeatable, not secret.
    names: list[FaultKind] = []
    while len(names) < count:
        names += dice.sample(list(kinds), len(kinds))
    moments = sorted(dice.uniform(_FIRST, _LAST) * seconds for _ in range(count))
    return tuple(
        Fault(
            number=number,
            kind=kind,
            at=round(at, 3),
            lasting=round(dice.uniform(*_LASTING.get(kind, (0.0, 0.0))) * lease, 3),
            pick=dice.random(),
        )
        for number, (kind, at) in enumerate(zip(names[:count], moments, strict=True), 1)
    )
