"""Owns the producer process: it enqueues a mix of jobs, and records what was acknowledged.

`python -m windlass.chaos.producer '{"seed": 1, "jobs": 100, ...}'`; SIGTERM ends it between two
calls.
"""

from __future__ import annotations

import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from windlass.app.handle import Handle
from windlass.app.producer import Draft
from windlass.chaos import workload
from windlass.chaos.terms import CONCURRENCY, PRODUCERS, RATE, Order
from windlass.chaos.workload import app, ledger
from windlass.core.errors import WindlassError

_UNIQUE_KEYS = 4
_BURST_EVERY = 3
"""Rounds between two bursts of limited jobs."""
_ACCOUNTS = 3
_PACED, _BURST_PACED = 3, 2 * RATE
"""Jobs of `paced` in each round, and in a burst."""
_MAX_PACED = 0.8 * RATE
"""How many of these may be enqueued in a second; more would wait for ever longer."""
_LONG = 0.3
"""The part of jobs that take long, so that most faults hit one, also at a low rate."""
_BATCH = 200
"""Jobs in one call: Redis adds up to 200 as a whole."""
_LIVES_APART = 2**62
_PAUSE_AFTER_ERROR = 0.2


class Producer:
    """Enqueues rounds of jobs of every kind."""

    def __init__(self, order: Order) -> None:
        self._order = order
        seed = order.seed * 1_000 + order.number + (order.life - 1) * _LIVES_APART
        self._dice = random.Random(seed)  # noqa: S311
        self._stopped = threading.Event()
        self._rounds = self._calls = 0
        self._places: dict[str, int] = {}
        self._closed: set[str] = set()
        self.count = self._counted = 0

    def stop(self, *_: object) -> None:
        """End soon."""
        self._stopped.set()

    def run(self) -> None:
        """Enqueue evenly over the time, and afterwards more slowly, until it is stopped."""
        ledger.write("ready")
        began = time.monotonic() - self._order.passed
        while True:
            for enqueue in self._round():
                due = began + self._order.due(self._order.enqueued + self.count)
                if self._stopped.wait(max(due - time.monotonic(), 0)):
                    return
                enqueue()

    def _round(self) -> Iterator[Callable[[], None]]:
        """Yield what to enqueue; each part is waited for, so that no more is enqueued than due."""
        self._rounds += 1
        parts = [self._many, self._keys, self._flow]
        if self._rounds % _BURST_EVERY == 0:
            parts.insert(1, self._burst)
        if self._order.number % 2 == 0:
            # Two producers with a small order enqueue jobs of every kind.
            parts.reverse()
        yield from parts
        yield from self._fill()

    def _fill(self) -> Iterator[Callable[[], None]]:
        """Yield quick jobs, if the order is for more jobs than the rate limit lets through."""
        rounds = _MAX_PACED / PRODUCERS / (_PACED + _BURST_PACED / _BURST_EVERY)
        wanted = self._order.jobs / self._order.seconds / rounds
        missing = round(wanted) - (self.count - self._counted)
        for start in range(0, max(missing, 0), _BATCH):
            drafts = [workload.plain.draft() for _ in range(min(_BATCH, missing - start))]
            yield partial(self._enqueue, drafts)
        self._counted = self.count

    def _seconds(self, most: float) -> float:
        # Mostly short; some are long enough to be hit by a fault.
        part = 1.0 if self._dice.random() < _LONG else 0.1
        return round(self._dice.uniform(0.4, 1.0) * most * part, 3)

    def _many(self) -> None:
        made: list[Draft[Any]] = [
            *(workload.plain.draft(self._seconds(3.0)) for _ in range(5)),
            workload.threaded.draft(self._seconds(1.0)),
            workload.isolated.draft(self._seconds(1.0)),
            workload.flaky.draft(),
            *(workload.limited.draft(self._seconds(0.8)) for _ in range(3)),
            *(workload.paced.draft() for _ in range(_PACED)),
            workload.staged.draft(self._seconds(0.8)),
            workload.saga.draft(self._seconds(0.6)),
        ]
        if self._order.transfers:
            made += [workload.transfer.draft(self._seconds(0.8)) for _ in range(3)]
        self._enqueue(made)

    def _burst(self) -> None:
        """Enqueue more than the limits let through: a limit that never binds proves nothing."""
        limited = [workload.limited.draft(self._seconds(1.0)) for _ in range(3 * CONCURRENCY)]
        self._enqueue([*limited, *(workload.paced.draft() for _ in range(_BURST_PACED))])

    def _enqueue(self, drafts: Sequence[Draft[Any]]) -> None:
        self._offer(drafts)
        if self._call(lambda: app.enqueue_many(drafts)):
            ledger.write_all("accepted", _named(drafts))
            self.count += len(drafts)

    def _keys(self) -> None:
        """Enqueue jobs whose keys others have, too."""
        for _ in range(3):
            self._one_unique()
            self._one_ordered()

    def _one_unique(self) -> None:
        key = f"key-{self._dice.randrange(_UNIQUE_KEYS)}"
        draft = workload.unique.draft(key, self._seconds(1.0))
        self._offer([draft])
        handles: list[Handle[Any]] = []
        if self._call(lambda: handles.extend(app.enqueue_many([draft]))):
            for handle in handles:
                if not handle.is_duplicate:
                    self._accept(str(handle.id), "unique", key)

    def _one_ordered(self) -> None:
        # A killed producer may have left a job whose place in the order is unknown.
        whose = f"{self._order.number}.{self._order.life}"
        account = f"{whose}-{self._dice.randrange(_ACCOUNTS)}"
        if account in self._closed:
            account = f"{account}-{len(self._closed)}"
        place = self._places.get(account, 0) + 1
        draft = workload.ordered.draft(account, fails=self._dice.random() < 0.2)
        self._offer([draft])
        if self._call(lambda: app.enqueue_many([draft])):
            self._places[account] = place
            self._accept(str(draft.job.id), "ordered", f"{account}#{place}")
        else:
            # Whether it was added is unknown, and so is the order behind it.
            self._closed.add(account)

    def _flow(self) -> None:
        flow = app.flow("chaos")
        first = flow.add(workload.member.draft(self._seconds(0.5)))
        middle = [flow.add(workload.member.draft(self._seconds(0.5)), after=[first]) for _ in "ab"]
        last = flow.add(workload.member.draft(), after=middle)
        nodes = [(str(node.id), "member") for node in (first, *middle, last)]
        self._write_offers([(str(flow.id), "flow"), *nodes])
        if self._call(flow.enqueue):
            self._accept(str(flow.id), "flow")
            self._accept(str(first.id), "member")
            for node in middle:
                self._accept(str(node.id), "member", str(first.id))
            self._accept(str(last.id), "member", " ".join(str(node.id) for node in middle))

    def _offer(self, drafts: Sequence[Draft[Any]]) -> None:
        self._write_offers(_named(drafts))

    def _write_offers(self, jobs: Sequence[tuple[str, str]]) -> None:
        """Write the jobs of one call, before it is made."""
        self._calls += 1
        ledger.write_all("offered", jobs, mark=str(self._calls))

    def _accept(self, job: str, kind: str, mark: str = "") -> None:
        ledger.write("accepted", job=job, name=kind, mark=mark)
        self.count += 1

    def _call(self, call: Callable[[], object]) -> bool:
        """Return whether the store acknowledged a call."""
        try:
            call()
        except WindlassError as error:
            ledger.write("refused", name=type(error).__name__)
            self._stopped.wait(_PAUSE_AFTER_ERROR)
            return False
        return True


def _named(drafts: Sequence[Draft[Any]]) -> list[tuple[str, str]]:
    return [(str(draft.job.id), draft.job.kind) for draft in drafts]


def main(order: Order) -> None:
    """Produce until the order is met or SIGTERM comes."""
    producer = Producer(order)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, producer.stop)
    try:
        producer.run()
    finally:
        app.close()


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Order))
