"""Owns the measurements behind `processes=1..8`; core/autoscale.py decides."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.core.autoscale import (
    PROCESSES_PAUSES,
    Decision,
    Pauses,
    ProcessesLoad,
    in_use,
    scale_processes,
)
from windlass.core.values.ranges import Bounds
from windlass.core.workers import WorkerPulse
from windlass.observability.logs import get_logger
from windlass.process.gauges import Peak
from windlass.settings import usable_cpus

log = get_logger("windlass.scaler")


class ProcessScaler:
    """Decides how many processes to run, by their pulses."""

    def __init__(
        self, bounds: Bounds, slots: Bounds, *, now: float, pauses: Pauses = PROCESSES_PAUSES
    ) -> None:
        self._bounds = bounds
        self._slots = slots
        self._pauses = pauses
        self._since = now
        self._peak = Peak(pauses.fall)

    def consider(
        self, present: int, pulses: Sequence[WorkerPulse], *, now: float
    ) -> Decision | None:
        """Decide by the pulses of the processes that are alive, and log a change with its reason.

        `present` counts the processes that are to run, whether they have sent a pulse yet or not;
        `now` is any monotonic clock. A decision is assumed to be carried out.
        """
        if len(pulses) < present:
            # A silent process counts as a change: nothing is known until it reports.
            self._since = now
        load = ProcessesLoad(
            pulses=tuple(pulses),
            slots=self._slots,
            cpus=usable_cpus(),
            peak=self._peak.add(sum(map(in_use, pulses)), now),
            since_change=now - self._since,
        )
        decision = scale_processes(self._bounds, present, load, self._pauses)
        if decision is not None:
            self._since = now
            self._log(present, decision, load)
        return decision

    def _log(self, present: int, decision: Decision, load: ProcessesLoad) -> None:
        log.info(
            "processes.scaled",
            **{"from": present, "to": decision.target},
            reason=decision.reason,
            bounds=str(self._bounds),
            waiting=sum(pulse.waiting for pulse in load.pulses),
            running=sum(pulse.running for pulse in load.pulses),
            in_use=round(load.peak, 2),
            cpu=round(sum(pulse.cpu for pulse in load.pulses), 2),
        )
