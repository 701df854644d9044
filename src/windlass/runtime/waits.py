"""Owns the wait for whichever of several events comes first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any


async def first(*events: Awaitable[Any], patience: float) -> None:
    """Return when the first of them has happened, or time is up; nobody waits for the others."""
    tasks = [asyncio.ensure_future(event) for event in events]
    try:
        await asyncio.wait(tasks, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
