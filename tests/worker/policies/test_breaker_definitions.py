"""Breakers that nobody defined, or two definitions of one, are refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.app_on_store import QUICK, Bed, on_embedded_stores
from tests.worker.policies.breaker_gateway import Down
from windlass import Breaker, ConfigError, ErrorClass
from windlass.core.policies.breaker_record import BreakerState

pytestmark = pytest.mark.stores("postgres")


# -- what is wrong is said -------------------------------------------------------------------------


@on_embedded_stores
def test_a_name_that_nobody_defined_keeps_a_worker_from_starting(bed: Bed) -> None:
    app = bed.app()

    @app.job(breaker=Breaker("stripe"))
    async def charge() -> None:
        pass

    @app.job(breaker="strip")
    async def refund() -> None:
        pass

    async def main() -> None:
        with pytest.raises(
            ConfigError, match="'strip', which is not defined; known breakers: stripe"
        ):
            await asyncio.wait_for(app.arun_worker(**QUICK), 60)

    asyncio.run(main())


@on_embedded_stores
def test_two_definitions_of_one_breaker_are_refused_at_once(bed: Bed) -> None:
    app = bed.app()
    shared = Breaker("stripe")

    @app.job(breaker=shared)
    async def charge() -> None:
        pass

    @app.job(breaker=shared)
    async def refund() -> None:
        pass

    @app.job(breaker=Breaker("stripe", cooldown="1m"))
    async def check() -> None:
        pass

    with pytest.raises(ConfigError, match="'stripe' is defined twice, and differently"):

        @app.job(breaker=Breaker("stripe", failures=6))
        async def other() -> None:
            pass

    wrong: Any = 5
    with pytest.raises(ConfigError, match="must be a Breaker or the name of one, got 5"):

        @app.job(breaker=wrong)
        async def another() -> None:
            pass

    assert "other" not in app.registry
    assert "another" not in app.registry


@on_embedded_stores
def test_a_breaker_that_does_not_exist_cannot_be_forced(bed: Bed) -> None:
    app = bed.app()
    app.classify(ErrorClass.SYSTEM, Down)

    @app.job(breaker=Breaker("stripe"))
    async def charge() -> None:
        pass

    @app.job
    async def mail() -> None:
        pass

    async def main() -> None:
        with pytest.raises(ConfigError, match="no breaker 'strip'; known breakers: stripe"):
            await app.control.aopen_breaker("strip")
        assert (await app.control.aopen_breaker("kind:mail")).state is BreakerState.OPEN
        assert [each.name for each in await app.control.abreakers()] == ["kind:mail", "stripe"]

    asyncio.run(main())
