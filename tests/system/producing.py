"""Owns producers with a ledger of their own: what was acknowledged, and when."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, NamedTuple
from uuid import UUID

from tests.support.worker_processes import PATIENCE, until
from windlass import EnqueueUncertain, Kind, StoreUnavailable, Windlass

PRODUCERS = 2
PACE = 0.004


class Acknowledged(NamedTuple):
    """A job that its producer was told of, and when."""

    job: UUID
    at: float


class Producing:
    """A producer that keeps a ledger of its own: what was acknowledged, and what never was."""

    def __init__(self) -> None:
        self.acknowledged: list[Acknowledged] = []
        self.refused = 0
        self.repeated = 0
        self.failed: list[BaseException] = []

    def note(self, job: UUID) -> None:
        self.acknowledged.append(Acknowledged(job, time.time()))


@contextmanager
def producing(url: str) -> Iterator[list[Producing]]:
    """Enqueue from several threads around a block; an uncertain enqueue is repeated."""
    enough = threading.Event()
    ledgers = [Producing() for _ in range(PRODUCERS)]
    with closing(Windlass(url, listen_url="off")) as app:
        threads = [threading.Thread(target=_produce, args=[app, each, enough]) for each in ledgers]
        for thread in threads:
            thread.start()
        try:
            yield ledgers
        finally:
            enough.set()
            for thread in threads:
                thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    assert not any(each.failed for each in ledgers), [each.failed for each in ledgers]


def _produce(app: Windlass, ledger: Producing, enough: threading.Event) -> None:
    producer = app.producer(Kind("quick", dict[str, Any]))
    try:
        while not enough.wait(PACE):
            try:
                ledger.note(producer.enqueue({"pause": 0.02}).id)
            except EnqueueUncertain as error:
                ledger.note(_repeated(ledger, error))
            except StoreUnavailable:
                ledger.refused += 1
    except BaseException as error:
        ledger.failed.append(error)


def _repeated(ledger: Producing, error: EnqueueUncertain) -> UUID:
    def again() -> UUID | None:
        try:
            ledger.repeated += 1
            return error.retry()[0].id
        except EnqueueUncertain:
            return None

    found = until(again, "an answer to an enqueue")
    assert found is not None
    return found


def acknowledged(ledgers: list[Producing]) -> list[UUID]:
    """Return the jobs that producers were told of."""
    return [entry.job for each in ledgers for entry in each.acknowledged]


def answered(ledgers: list[Producing], since: float) -> list[float]:
    """Return when producers were told of jobs, since a moment, in order."""
    times = [entry.at for each in ledgers for entry in list(each.acknowledged)]
    return sorted(at for at in times if at > since)
