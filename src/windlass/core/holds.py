"""Owns what a limit has to do with one job: who has its tokens, and which of them cool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from windlass.core.job import Job, Json
from windlass.core.limits import Change, Limit, Measure, Tokens

_RECENT = 3.0
"""Seconds for which a worker's wish that was not met says that there is nothing left."""


@dataclass(frozen=True, kw_only=True)
class Hold:
    """One measure of a limit as a job meets it: what there is for its key, and who has it."""

    limit: str
    measure: Measure
    told: str
    """As people write it: `10/s`, or `5 at a time`; empty where only workers know."""
    key: str = ""
    """Of the job, if the limit goes by keys."""
    capacity: int | None
    """None if it is not known here."""
    holders: Mapping[str, int]
    """How many tokens each worker has, for jobs or for soon."""
    jobs: tuple[Job, ...] = ()
    """Those that run under it, as far as they were looked at."""
    cooling: int = 0
    next_at: datetime | None = None
    """When the next of those that cool is free again."""
    wanted: bool = False
    """Whether a worker has asked in vain, just now."""
    amount: int = 1
    """How many tokens the job needs."""
    ordered: bool = False
    """Whether its worker keeps the key also between two runs of a job, so that none overtakes."""

    @property
    def binds(self) -> bool:
        """Whether it keeps the job from starting, as far as can be told from outside.

        A worker may have tokens that it does not use. Of a concurrency one sees its jobs; of a rate
        one does not see how much of it still cools there.
        """
        if self.wanted:
            return True
        if self.capacity is None:
            return False
        taken = sum(self.holders.values()) + self.cooling
        if self.capacity - taken >= self.amount:
            return False
        is_unseen = self.measure is Measure.RATE or self.ordered
        return is_unseen or len(self.jobs) > self.capacity - self.amount


def holds_on(
    job: Job,
    name: str,
    limit: Limit | None,
    *,
    change: Json | None,
    accounts: Mapping[str, Json],
    running: Mapping[str, tuple[Job, ...]],
    amount: int,
    now: datetime,
) -> Iterator[Hold]:
    """Yield what a limit has to do with a job; None is one that only the store knows of.

    `accounts` are the records of limits, `running` the jobs under it that each worker runs.
    """
    keyed = Limit(name=name, keyed=True).record(job.key)
    plain = Limit(name=name).record(job.key)
    goes_by_keys = limit.keyed if limit is not None else keyed in accounts
    account = accounts.get(keyed if goes_by_keys else plain, {})
    known = _tokens(limit, change)
    for measure in Measure:
        part: Json = account.get(measure.value, {})
        if not part and measure not in known:
            continue
        key = job.key if goes_by_keys else ""
        holders = {
            worker: keys[key] for worker, keys in part.get("holds", {}).items() if keys.get(key)
        }
        cooling = [
            (until, count)
            for until, count in part.get("cooling", {}).get(key, ())
            if until > now.timestamp()
        ]
        told, tokens = known.get(measure, ("", None))
        yield Hold(
            limit=name,
            measure=measure,
            told=told,
            key=key,
            capacity=None if tokens is None else tokens.capacity,
            holders=holders,
            jobs=tuple(
                each
                for jobs in running.values()
                for each in jobs
                if not goes_by_keys or each.key == job.key
            ),
            cooling=sum(count for _, count in cooling),
            next_at=datetime.fromtimestamp(min(cooling)[0], UTC) if cooling else None,
            wanted=any(
                abs(now.timestamp() - at) < _RECENT
                for at in part.get("wants", {}).get(key, {}).values()
            ),
            amount=amount,
            ordered=limit is not None and limit.ordered,
        )


def _tokens(limit: Limit | None, change: Json | None) -> dict[Measure, tuple[str, Tokens]]:
    """Return what there is by each measure, and how people write that."""
    if limit is None:
        told = Change.read(change or {})
        limit = Limit(name="", rate=told.rate, burst=None, concurrency=told.concurrency)
    else:
        limit = limit.changed(change or {})
    shown = {Measure.RATE: str(limit.rate), Measure.CONCURRENCY: f"{limit.concurrency} at a time"}
    return {measure: (shown[measure], tokens) for measure, tokens in limit.tokens().items()}
