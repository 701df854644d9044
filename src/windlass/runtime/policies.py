"""Owns which gates a worker needs, by what the kinds of its app say."""

from __future__ import annotations

from collections.abc import Callable

from windlass.registry import Registry
from windlass.runtime.breakers import Breakers
from windlass.runtime.gates import Gate
from windlass.runtime.judge import Judge
from windlass.store import Store


def gates_for(
    registry: Registry,
    store: Store,
    *,
    judge: Judge,
    worker_id: Callable[[], str],
    rouse: Callable[[], None],
) -> list[Gate]:
    """Return the gates that the kinds of a registry need; `rouse` lets the claimer look again.

    Raises:
        ConfigError: a kind names a breaker that nobody defined.
    """
    gates: list[Gate] = []
    if rules := registry.rules():
        gates.append(Breakers(store, rules, worker_id=worker_id, rouse=rouse, trips=judge.trips))
    return gates
