"""Owns the measuring behind `slots=5..100` and `processes=1..8`; core/scale.py decides."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from windlass.core.bounds import Bounds
from windlass.core.job import Pulse
from windlass.core.scale import (
    PROCESSES_PAUSES,
    Decision,
    Pauses,
    ProcessesLoad,
    SlotsLoad,
    in_use,
    scale_processes,
    scale_slots,
)
from windlass.observe.logs import get_logger
from windlass.runtime.demand import Demand
from windlass.runtime.gauges import Average, Peak, Typical
from windlass.runtime.service import Service
from windlass.settings import usable_cpus

log = get_logger("windlass.scaler")
_LAGS = 5


@dataclass(frozen=True, kw_only=True)
class Look:
    """What is to be seen of a worker at one moment; the counts only grow."""

    now: float
    due: float
    """When this look should have been, by the event loop's own timer."""
    waiting: bool
    peak: int
    processed: int
    served: float
    """Seconds that the jobs which have ended took, added up."""
    loop_cpu: float
    """CPU seconds of the thread in which the event loop runs."""
    process_cpu: float


class SlotsGauge:
    """Turns looks at a worker into measurements. It has no clock: every look tells its time."""

    def __init__(self, pauses: Pauses, cpus: int, first: Look) -> None:
        self._pauses = pauses
        self._cpus = cpus
        self._last = first
        self._changed = first.now
        self._strained_at: int | None = None
        self._strained = -math.inf
        self._peak = Peak(pauses.fall)
        self._lag = Typical(_LAGS)
        self._served, self._rate, self._cpu = (Average(4 * pauses.look) for _ in range(3))

    def take(self, look: Look) -> SlotsLoad:
        """Take in a look, and return what is known by now."""
        last, self._last = self._last, look
        lasted = max(look.now - last.now, 1e-6)
        self._served.add((look.served - last.served) / lasted, lasted)
        self._rate.add((look.processed - last.processed) / lasted, lasted)
        loop = (look.loop_cpu - last.loop_cpu) / lasted
        self._cpu.add(
            max(loop, (look.process_cpu - last.process_cpu) / lasted / self._cpus), lasted
        )
        rate = self._rate.value
        return SlotsLoad(
            waiting=look.waiting,
            peak=int(self._peak.add(look.peak, look.now)),
            service_time=self._served.value / rate if rate else None,
            throughput=rate,
            lag=self._lag.add(max(look.now - look.due, 0.0)),
            cpu=self._cpu.value,
            since_change=look.now - self._changed,
            strained_at=self._strained_at,
            since_strain=look.now - self._strained,
        )

    def changed(self, decision: Decision) -> None:
        """Begin anew, since what was measured so far is what another number of slots led to."""
        self._changed = self._last.now
        if decision.too_much is not None:
            self._strained_at, self._strained = decision.too_much, self._last.now
        for gauge in (self._lag, self._served, self._rate, self._cpu):
            gauge.reset()


class SlotScaler(Service):
    """Lets the slots of a worker follow its load, and logs every change with its reason."""

    name = "scaler"

    def __init__(
        self,
        bounds: Bounds,
        pauses: Pauses,
        *,
        worker_id: Callable[[], str],
        demand: Demand,
        processed: Callable[[], int],
        slots: Callable[[], int],
        scale: Callable[[int], None],
    ) -> None:
        super().__init__()
        self._bounds = bounds
        self._pauses = pauses
        self._worker_id = worker_id
        self._demand = demand
        self._processed = processed
        self._slots = slots
        self._scale = scale
        self._due = time.monotonic()
        self._gauge: SlotsGauge | None = None

    async def tick(self) -> float:
        look = self._look()
        if self._gauge is None:
            self._gauge = SlotsGauge(self._pauses, usable_cpus(), look)
        else:
            self._consider(self._gauge, self._gauge.take(look))
        self._due = time.monotonic() + self._pauses.look
        return self._pauses.look

    def _look(self) -> Look:
        waiting, peak = self._demand.look()
        return Look(
            now=time.monotonic(),
            due=self._due,
            waiting=waiting,
            peak=peak,
            processed=self._processed(),
            served=self._demand.served,
            loop_cpu=time.thread_time(),  # A tick runs in the event loop's thread.
            process_cpu=time.process_time(),
        )

    def _consider(self, gauge: SlotsGauge, load: SlotsLoad) -> None:
        before = self._slots()
        decision = scale_slots(self._bounds, before, load, self._pauses)
        if decision is None:
            return
        self._scale(decision.target)
        gauge.changed(decision)
        takes = load.service_time
        log.info(
            "slots.scaled",
            worker_id=self._worker_id(),
            **{"from": before, "to": decision.target},
            reason=decision.reason,
            bounds=str(self._bounds),
            waiting=load.waiting,
            most_running=load.peak,
            service_time=None if takes is None else round(takes, 4),
            throughput=round(load.throughput, 1),
            loop_lag=None if load.lag is None else round(load.lag, 3),
            cpu=round(load.cpu, 2),
        )


class ProcessScaler:
    """Says how many processes there shall be, by their pulses; who runs them asks it at will."""

    def __init__(
        self, bounds: Bounds, slots: Bounds, *, now: float, pauses: Pauses = PROCESSES_PAUSES
    ) -> None:
        self._bounds = bounds
        self._slots = slots
        self._pauses = pauses
        self._since = now
        self._peak = Peak(pauses.fall)

    def consider(self, present: int, pulses: Sequence[Pulse], *, now: float) -> Decision | None:
        """Decide by the pulses of the processes that are alive, and log a change with its reason.

        `present` counts the processes that are to run, whether they have told anything yet or not;
        `now` is any clock that never goes back. A decision is taken to be followed.
        """
        if len(pulses) < present:
            self._since = now  # Whoever is silent counts as a change: nothing is known till then.
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
