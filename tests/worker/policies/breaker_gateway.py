"""Owns the gateway that fails in the tests of breakers, and how they wait for a state."""

from __future__ import annotations

import asyncio

from tests.support.app_on_store import until
from windlass import Windlass
from windlass.core.policies.breaker_record import BreakerState, BreakerStatus


class Down(Exception):
    pass


async def status_of(app: Windlass, name: str = "stripe") -> BreakerStatus:
    (status,) = [each for each in await app.control.abreakers() if each.name == name]
    return status


async def becomes(app: Windlass, state: BreakerState, name: str = "stripe") -> BreakerStatus:
    async def is_so() -> bool:
        known = {each.name: each for each in await app.control.abreakers()}
        return name in known and known[name].state is state

    await until(is_so)
    return await status_of(app, name)


class Gateway:
    """What all jobs depend on; it is up or down, and counts its calls."""

    def __init__(self) -> None:
        self.up = False
        self.calls = 0
        self.at_once = 0
        self.most_at_once = 0

    async def call(self) -> None:
        self.calls += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(0.01)
        finally:
            self.at_once -= 1
        if not self.up:
            raise Down
