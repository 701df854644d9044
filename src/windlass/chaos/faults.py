"""Owns the throwing of faults: chooses a victim, strikes, waits, heals, and records the strike."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Sequence

from windlass.chaos.grounds.ground import Ground
from windlass.chaos.laws.history import Strike
from windlass.chaos.ledger import Ledger
from windlass.chaos.plan import NETWORK_FAULTS, Fault, FaultKind
from windlass.chaos.processes import Fleet, ProducerProcess, children_of, descendants, signal_all

_VICTIM_SECONDS = 10.0
"""Seconds for which a fault waits for a process that it can hit."""
_DELAY_SECONDS = 0.1
_APART_SECONDS = 2.0
_BUSY = "busy machine"
_EXCUSED = "not thrown: no CPU time for a while, which excuses all workers"
_SERVER_FAULTS = (
    FaultKind.TERMINATE_BACKENDS,
    FaultKind.RESTART_SERVER,
    FaultKind.FAIL_OVER,
    FaultKind.FILL_DISK,
    FaultKind.STEP_CLOCK,
)
_STEP_SECONDS = (3.0, 12.0)
"""By how much the clock is set forward or back; shorter steps look like a slow answer."""
_SIGNALS = {
    FaultKind.KILL_WORKER: signal.SIGKILL,
    FaultKind.KILL_CHILD: signal.SIGKILL,
    FaultKind.KILL_SUPERVISOR: signal.SIGKILL,
    FaultKind.STOP_WORKER: signal.SIGSTOP,
    FaultKind.TERMINATE_WORKER: signal.SIGTERM,
    FaultKind.TERMINATE_SUPERVISOR: signal.SIGTERM,
    FaultKind.KILL_PRODUCER: signal.SIGKILL,
}


class Thrower:
    """Throws faults, one after the other, at fleets and at the ground below them."""

    def __init__(
        self,
        ground: Ground,
        fleets: Sequence[Fleet],
        producers: Sequence[ProducerProcess],
        ledger: Ledger,
    ) -> None:
        self._ground = ground
        self._fleets = fleets
        self._producers = producers
        self._ledger = ledger
        self.strikes: list[Strike] = []
        """The thrown faults; number 0 is the machine's own doing."""
        self._clock_step = 0.0
        """By how much the fault that is being thrown has set the store's clock."""
        self.current = ""
        """The fault that is being thrown; empty: none."""

    async def throw(self, fault: Fault) -> None:
        """Throw one fault, and return when it is over."""
        victim = await self._victim(fault) if fault.kind in _SIGNALS else 0
        if victim is None:
            self._record(fault, time.monotonic(), (), "there was no process to hit")
            return
        pids = (victim, *descendants(victim)) if victim else ()
        self.current, self._clock_step = fault.kind.value, 0.0
        began = self._ledger.write("fault", name=fault.kind, mark=str(fault.number))
        note = "was interrupted"
        try:
            note = await self._strike(fault, victim)
        finally:
            self._record(fault, began, pids, note)
            self.current = ""

    @property
    def thrown(self) -> int:
        """How many faults have been thrown."""
        return sum(strike.number > 0 for strike in self.strikes)

    def was_starved(self, began: float) -> None:
        """Record that all processes lacked CPU time, since a moment and until now."""
        latest = next((each for each in reversed(self.strikes) if not each.number), None)
        now = time.monotonic()
        if latest is not None and began - latest.ended < _APART_SECONDS:
            self.strikes.remove(latest)
            began = latest.began
        self.strikes.append(
            Strike(number=0, fault=_BUSY, began=began, ended=now, touches_all=True, note=_EXCUSED)
        )

    async def _strike(self, fault: Fault, victim: int) -> str:
        if fault.kind in NETWORK_FAULTS:
            await self._break_network(fault)
        elif fault.kind is FaultKind.TERMINATE_BACKENDS:
            await self._ground.terminate_backends()
        elif fault.kind is FaultKind.RESTART_SERVER:
            await self._ground.restart(fault.lasting)
        elif fault.kind is FaultKind.FAIL_OVER:
            await self._ground.fail_over(fault.lasting)
        elif fault.kind is FaultKind.FILL_DISK:
            await self._ground.fill_disk(fault.lasting)
        elif fault.kind is FaultKind.STEP_CLOCK:
            return await self._step_clock(fault)
        else:
            return await self._signal(fault, victim)
        return ""

    async def _step_clock(self, fault: Fault) -> str:
        least, most = _STEP_SECONDS
        length = least + (most - least) * abs(2 * fault.pick - 1)
        seconds = round(length if fault.pick < 0.5 else -length, 3)
        await self._ground.step_clock(seconds)
        self._clock_step = seconds
        return f"by {seconds:+g} s"

    async def _signal(self, fault: Fault, victim: int) -> str:
        signal_all([victim], _SIGNALS[fault.kind])
        if fault.kind is FaultKind.STOP_WORKER:
            try:
                await asyncio.sleep(fault.lasting)
            finally:
                signal_all([victim], signal.SIGCONT)
        return f"process {victim}"

    async def _break_network(self, fault: Fault) -> None:
        proxy = self._ground.proxy
        if proxy is None:
            return
        match fault.kind:
            case FaultKind.STALL_NETWORK:
                proxy.stall()
            case FaultKind.CUT_NETWORK:
                proxy.refuse()
            case FaultKind.DELAY_NETWORK:
                proxy.delay(_DELAY_SECONDS)
            case _:
                proxy.reset()
        try:
            await asyncio.sleep(fault.lasting)
        finally:
            proxy.heal()

    async def _victim(self, fault: Fault) -> int | None:
        """Return a process that the fault can hit, as soon as there is one."""
        deadline = time.monotonic() + _VICTIM_SECONDS
        while time.monotonic() < deadline:
            if candidates := await asyncio.to_thread(self._candidates, fault.kind):
                return candidates[int(fault.pick * len(candidates)) % len(candidates)]
            await asyncio.sleep(0.1)
        return None

    def _candidates(self, kind: FaultKind) -> list[int]:
        if kind is FaultKind.KILL_PRODUCER:
            return [each.pid for each in self._producers if each.is_running]
        fleets = [each for each in self._fleets if each.is_running and not each.is_spared]
        if kind in (FaultKind.KILL_SUPERVISOR, FaultKind.TERMINATE_SUPERVISOR):
            return [fleet.pid for fleet in fleets if fleet.workers()]
        workers = [pid for fleet in fleets for pid in fleet.workers()]
        if kind is FaultKind.KILL_CHILD:
            return [child for pid in workers for child in children_of(pid)]
        return workers

    def _record(self, fault: Fault, began: float, pids: tuple[int, ...], note: str) -> None:
        # On SQLite a stopped process may hold the write lock, which stops all others as well.
        blocks_all = self._ground.name == "sqlite" and fault.kind is FaultKind.STOP_WORKER
        everybody = fault.kind in (*NETWORK_FAULTS, *_SERVER_FAULTS)
        ended = self._ledger.write("over", name=fault.kind, mark=str(fault.number))
        self.strikes.append(
            Strike(
                number=fault.number,
                fault=fault.kind.value,
                began=began,
                ended=ended,
                pids=pids,
                touches_all=everybody or blocks_all,
                forgets=fault.kind is FaultKind.FAIL_OVER,
                clock_step=self._clock_step,
                note=note,
            )
        )
