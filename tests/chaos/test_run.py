"""How a run of chaos ends when it is cancelled, or when a step of its end fails."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import cast

import pytest

from windlass.chaos.grounds.ground import Ground
from windlass.chaos.options import Options
from windlass.chaos.processes import Fleet
from windlass.chaos.run import Chaos, run_chaos

PROMPT = 60.0


class SlowGround(Ground):
    """A store that never gets ready, and that takes its time to close."""

    def __init__(self) -> None:
        super().__init__()
        self.prepares = asyncio.Event()
        self.closes = asyncio.Event()
        self.may_close = asyncio.Event()
        self.is_closed = False

    async def prepare(self) -> None:
        self.prepares.set()
        await asyncio.Event().wait()

    async def close(self) -> None:
        self.closes.set()
        await self.may_close.wait()
        self.is_closed = True


class Unkillable:
    """A process that cannot be killed."""

    def kill(self) -> None:
        raise PermissionError("not yours")


def chaos_on(ground: Ground, directory: Path) -> Chaos:
    chaos = Chaos(Options(), directory, lambda _: None)
    chaos._ground = ground
    return chaos


def test_a_run_that_is_cancelled_again_while_it_closes_its_store_still_closes_it(
    tmp_path: Path,
) -> None:
    async def main() -> SlowGround:
        ground = SlowGround()
        running = asyncio.create_task(chaos_on(ground, tmp_path).run())
        await ground.prepares.wait()
        running.cancel()
        await ground.closes.wait()
        running.cancel()
        await asyncio.sleep(0)
        ground.may_close.set()
        with pytest.raises(asyncio.CancelledError):
            await running
        return ground

    assert asyncio.run(asyncio.wait_for(main(), PROMPT)).is_closed


def test_a_process_that_cannot_be_killed_does_not_keep_the_store_open(tmp_path: Path) -> None:
    async def main() -> SlowGround:
        ground = SlowGround()
        ground.may_close.set()
        chaos = chaos_on(ground, tmp_path)
        chaos._fleets.append(cast("Fleet", Unkillable()))
        running = asyncio.create_task(chaos.run())
        await ground.prepares.wait()
        running.cancel()
        with pytest.raises(PermissionError):
            await running
        return ground

    assert asyncio.run(asyncio.wait_for(main(), PROMPT)).is_closed


def test_sigterm_cancels_a_run_and_closes_its_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> SlowGround:
        ground = SlowGround()
        ground.may_close.set()
        monkeypatch.setattr("windlass.chaos.run.ground_of", lambda *_: ground)
        running = asyncio.create_task(run_chaos(Options(), tmp_path, lambda _: None))
        await ground.prepares.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(asyncio.CancelledError):
            await running
        return ground

    assert asyncio.run(asyncio.wait_for(main(), PROMPT)).is_closed
