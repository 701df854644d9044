"""Owns which gates a worker needs, by what the kinds of its app say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from uuid import UUID

from windlass.core.plan import Pool
from windlass.registry import Registry
from windlass.runtime.breakers import Breakers
from windlass.runtime.gates import Gate
from windlass.runtime.judge import Judge
from windlass.runtime.limits import Limits
from windlass.store import Store


def gates_for(
    registry: Registry,
    store: Store,
    *,
    judge: Judge,
    worker_id: Callable[[], str],
    rouse: Callable[[], None],
    pools: Mapping[str, Pool],
    slots: Callable[[], int],
    has_begun: Callable[[UUID], bool],
    lease: timedelta,
) -> list[Gate]:
    """Return the gates that the kinds of a registry need; `rouse` lets the claimer look again.

    `slots` says how many jobs the worker runs at once, `pools` where those of each kind do, and
    `has_begun` whether one that was claimed has come to its handler.

    Raises:
        ConfigError: a kind names a breaker, or a resource, that nobody defined.
    """
    gates: list[Gate] = []
    if rules := registry.rules():
        gates.append(Breakers(store, rules, worker_id=worker_id, rouse=rouse, trips=judge.trips))
    if registry.is_limited:
        limits = Limits(
            store,
            registry,
            worker_id=worker_id,
            rouse=rouse,
            pools=pools,
            slots=slots,
            has_begun=has_begun,
            lease=lease,
        )
        gates.append(limits)
    return gates
