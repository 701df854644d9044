"""Owns waits that end in time: for the first of several events, and for a step of a shutdown."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from windlass.observe.logs import get_logger

log = get_logger("windlass.worker")


async def first(*events: Awaitable[Any], patience: float) -> None:
    """Return when the first of them has happened, or time is up; nobody waits for the others."""
    tasks = [asyncio.ensure_future(event) for event in events]
    try:
        await asyncio.wait(tasks, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def within(patience: float, step: Awaitable[Any], **fields: object) -> None:
    """Take a step of the shutdown, but never let it keep the process from ending."""
    try:
        async with asyncio.timeout(patience):
            await step
    except Exception as error:  # noqa: BLE001 - what is left to do is more important.
        told = f"{type(error).__qualname__}: {error}"
        log.warning("shutdown.incomplete", error=told, **fields)
