"""Owns the demo's app: handlers that are fast, slow, flaky, failing, snoozing, and unique.

A worker loads it like any other: `windlass worker windlass.demo:app`.
"""

from __future__ import annotations

import asyncio
import time

from windlass.app import Windlass
from windlass.core.jobs.outcomes import Snooze
from windlass.core.jobs.retry import Retry
from windlass.handlers.context import Context

app = Windlass(enqueue_timeout="1m")
_SOON = Retry(max_retries=5, initial="200ms", max_delay="2s")


@app.job(queue="mail")
async def send_email(to: str, template: str = "welcome") -> str:
    """Be fast, like most jobs."""
    await asyncio.sleep(0.002)
    return f"{template} sent to {to}"


@app.job(queue="images")
def resize_image(image: str, milliseconds: int) -> str:
    """Be slow and block: a `def` runs in a thread."""
    time.sleep(milliseconds / 1000)
    return f"small-{image}"


@app.job(queue="payments", retry=_SOON)
async def charge_card(ctx: Context, order: str, outages: int) -> str:
    """Fail a few times, as if the payment service were down, then succeed."""
    if ctx.attempt <= outages:
        raise ConnectionError(f"the payment service is down; {order} waits")
    return ctx.idempotency_key


@app.job(queue="imports", retry=Retry(max_retries=2, initial="200ms"))
async def import_feed(url: str) -> None:
    """Fail every time, until the job is dead and waits for a person."""
    raise ValueError(f"{url} is not a feed")


@app.job(queue="reports")
async def build_report(ctx: Context, name: str) -> str | Snooze:
    """Snooze once, since the figures are not there yet; that charges no retry."""
    return Snooze("1s") if ctx.attempt == 1 else f"{name} is ready"


@app.job(queue="reports")
async def daily_digest(day: str) -> str:
    """Be enqueued twice under one unique key, and run once."""
    return f"digest of {day}"
