"""Owns the list of laws that every store obeys; they need no test framework.

A store is tested by opening a `Bench` on it, with a clock that the laws can move:

    @asynccontextmanager
    async def open_bench() -> AsyncIterator[Bench]:
        clock = ManualClock()
        store = MyStore(clock=clock)
        yield Bench(store, clock)
        await store.close()

    @pytest.mark.parametrize("law", laws_for(MyStore().capabilities), ids=str)
    def test_my_store_obeys(law: Law) -> None:
        asyncio.run(law.check(open_bench))

`pytest.register_assert_rewrite("windlass.testing.conformance")` before the import makes pytest show
both sides of a failed comparison.
"""

from __future__ import annotations

from windlass.store.protocol import Capabilities
from windlass.testing.conformance import (
    applying,
    bounds,
    claiming,
    enqueueing,
    filtering,
    idempotency_keys,
    leasing,
    moving,
    news,
    pruning,
    queries,
    recalling,
    rescuing,
    searching,
    settling,
    sharing,
    stepping,
    streaming,
    uniqueness,
    waiting,
)
from windlass.testing.conformance.bench import Bench, Clock, ManualClock
from windlass.testing.conformance.law import Law, NotApplicable, OpenBench

_THEMES = (
    enqueueing,
    uniqueness,
    claiming,
    settling,
    idempotency_keys,
    waiting,
    recalling,
    leasing,
    rescuing,
    moving,
    applying,
    stepping,
    streaming,
    news,
    pruning,
    queries,
    filtering,
    searching,
    bounds,
    sharing,
)

LAWS: tuple[Law, ...] = tuple(
    law for theme in _THEMES for law in vars(theme).values() if isinstance(law, Law)
)


def laws_for(capabilities: Capabilities) -> tuple[Law, ...]:
    """Return the laws that bind a store with these capabilities."""
    return tuple(law for law in LAWS if law.applies_to(capabilities))


__all__ = [
    "LAWS",
    "Bench",
    "Clock",
    "Law",
    "ManualClock",
    "NotApplicable",
    "OpenBench",
    "laws_for",
]
