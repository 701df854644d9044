"""Owns limits as people see them: their definition, their changes, and how much is in use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime

from msgspec import Struct, field

from windlass.core.jobs.job import Job
from windlass.core.policies.limit import RECORD, Change, Limit, Measure, Tokens
from windlass.core.records import Json


class LimitState(Struct, frozen=True, kw_only=True):
    """A limit as it is now; if only the store knows it, as far as it was changed.

    `held` are tokens of the concurrency that workers hold, for jobs or for claims; `used` are those
    of the rate that they hold, or that still cool. Keyed limits count those of all keys.
    """

    name: str
    rate: str | None
    burst: int | None
    concurrency: int | None
    keyed: bool
    changed: bool
    held: int
    used: int
    holders: Mapping[str, int] = field(default_factory=dict)
    """How many tokens of the concurrency each worker holds, those with most first."""
    exhausted: bool = False
    """Whether no token is left, so that further jobs wait; of a keyed limit, for some key."""
    kinds: tuple[str, ...] = ()
    """The kinds whose jobs this limit may hold back, as far as known here."""


def limit_state(
    name: str,
    limit: Limit | None,
    change: Json | None,
    accounts: Mapping[str, Json],
    now: float,
    kinds: Iterable[str] = (),
) -> LimitState:
    """Return a limit's state from the code, the records and the clock."""
    changed = Change.read(change or {})
    shown = limit.changed(change or {}) if limit is not None else changed
    own = [
        account
        for record, account in accounts.items()
        if record == RECORD + name or record.startswith(f"{RECORD}{name}/")
    ]
    held = sum(_out(each.get(Measure.CONCURRENCY.value, {}), now) for each in own)
    is_keyed = limit is not None and limit.keyed
    is_full = not is_keyed and shown.concurrency is not None and held >= shown.concurrency
    return LimitState(
        name=name,
        rate=None if shown.rate is None else str(shown.rate),
        burst=shown.burst,
        concurrency=shown.concurrency,
        keyed=is_keyed,
        changed=change is not None,
        held=held,
        used=sum(_out(each.get(Measure.RATE.value, {}), now) for each in own),
        holders=_holders(each.get(Measure.CONCURRENCY.value, {}) for each in own),
        exhausted=is_full or any(_is_wanted_by_some(each, now) for each in own),
        kinds=tuple(sorted(kinds)),
    )


def _is_wanted_by_some(account: Json, now: float) -> bool:
    return any(
        _is_wanted(part, key, now) for part in account.values() for key in part.get("wants", ())
    )


def _holders(accounts: Iterable[Json]) -> dict[str, int]:
    held = Counter[str]()
    for account in accounts:
        for worker, keys in account.get("holds", {}).items():
            held[worker] += sum(keys.values())
    return {worker: count for worker, count in held.most_common() if count}


def _out(account: Json, now: float) -> int:
    held: list[int] = [
        count for keys in account.get("holds", {}).values() for count in keys.values()
    ]
    cooling: list[int] = [
        count
        for entries in account.get("cooling", {}).values()
        for until, count in entries
        if until > now
    ]
    return sum(held) + sum(cooling)


_RECENT_SECONDS = 3.0
"""Seconds for which an unmet wish of a worker shows that no tokens are left."""


class Hold(Struct, frozen=True, kw_only=True):
    """One measure of a limit for one job: the tokens of its key, and their holders."""

    limit: str
    measure: Measure
    text: str
    """As people write it: `10/s`, or `5 at a time`; empty where only workers know."""
    key: str = ""
    """The job's key, if the limit is keyed."""
    capacity: int | None
    """None if it is not known here."""
    holders: Mapping[str, int]
    """How many tokens each worker has, for jobs or for claims."""
    jobs: tuple[Job, ...] = ()
    """The running jobs under this limit, as far as known."""
    cooling: int = 0
    next_at: datetime | None = None
    """When the next cooling token is free again."""
    wanted: bool = False
    """Whether a worker has just asked without success."""
    amount: int = 1
    """How many tokens the job needs."""
    ordered: bool = False
    """Whether its worker keeps the key also between two runs of a job, so that none overtakes."""

    @property
    def binds(self) -> bool:
        """Whether it keeps the job from starting, as far as outsiders can see.

        A worker may have tokens that it does not use. The running jobs of a concurrency limit are
        visible; how much of a rate still cools in a worker is not.
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
    """Yield how a limit affects a job; None is one that only the store knows.

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
        cooling = _cooling(part, key, now)
        text, tokens = known.get(measure, ("", None))
        yield Hold(
            limit=name,
            measure=measure,
            text=text,
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
            wanted=_is_wanted(part, key, now.timestamp()),
            amount=amount,
            ordered=limit is not None and limit.ordered,
        )


def _cooling(part: Json, key: str, now: datetime) -> list[tuple[float, int]]:
    cooling = part.get("cooling", {}).get(key, ())
    return [(until, count) for until, count in cooling if until > now.timestamp()]


def _is_wanted(part: Json, key: str, now: float) -> bool:
    wants = part.get("wants", {}).get(key, {})
    return any(abs(now - at) < _RECENT_SECONDS for at in wants.values())


def _tokens(limit: Limit | None, change: Json | None) -> dict[Measure, tuple[str, Tokens]]:
    if limit is None:
        changed = Change.read(change or {})
        limit = Limit(name="", rate=changed.rate, burst=None, concurrency=changed.concurrency)
    else:
        limit = limit.changed(change or {})
    shown = {Measure.RATE: str(limit.rate), Measure.CONCURRENCY: f"{limit.concurrency} at a time"}
    return {measure: (shown[measure], tokens) for measure, tokens in limit.tokens().items()}
