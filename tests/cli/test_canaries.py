"""Secrets that are planted wherever a job has something to say are nowhere that anybody looks.

What is looked at: all log lines, the metrics, the spans, and every command that was not asked for
that very job, event or schedule.
"""

from __future__ import annotations

import asyncio
import io
import logging
from base64 import b64encode
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.app_on_store import PROMPT, in_state, serving, until
from windlass import Breaker, Context, Secret, State, Windlass, configure_logging
from windlass.worker import Worker

trace = pytest.importorskip("opentelemetry.trace", reason="pip install windlass[dev]")
sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="pip install windlass[dev]")
exporting = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")

if TYPE_CHECKING:
    from tests.cli.conftest import Shell

KEY = b64encode(bytes(32)).decode()
CANARY = "canary-5up3r-s3cr3t"
"""All that is planted begins with this; what follows says where."""
LISTINGS = [
    *(["jobs", "list"], ["dead", "list"], ["dead", "groups"], ["queues", "list"], ["workers"]),
    *(["schedules", "list"], ["flows", "list"], ["limits", "list"], ["breakers", "list"], ["slo"]),
    *(["doctor"], ["stats"], ["audit", "list"], ["bulk", "list"]),
]


@pytest.fixture
def heard() -> Iterator[io.StringIO]:
    """All log lines, from the finest level on."""
    root, stream = logging.getLogger(), io.StringIO()
    before, level = list(root.handlers), root.level
    configure_logging("debug", "json", stream)
    yield stream
    root.handlers[:] = before
    root.setLevel(level)


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Any:
    """All spans, as they would be sent."""
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    exporter = exporting.InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    return exporter


class Shop:
    """An app whose jobs have secrets in all that they are given, do and leave behind."""

    def __init__(self, shell: Shell) -> None:
        self.app = app = Windlass(
            f"sqlite:///{shell.file}", metrics_port=22_500, encryption_keys=KEY
        )

        @app.job(max_retries=0)
        async def give(ctx: Context, note: str, card: Secret[str]) -> str:
            await ctx.step("look up", looked_up)
            event = await ctx.wait_for("paid", timeout="1h")
            return f"{note} {event}"

        @app.job(max_retries=0)
        async def betray(ctx: Context, card: Secret[str], password: str) -> None:
            ctx.log.info("paying", card=card.reveal(), password=password, card_is=card)
            logging.getLogger("shop").warning("card %s, password=%s", card.reveal(), password)
            raise RuntimeError(f"{card.reveal()} at https://u:{password}@h/ password={password}")

        @app.job(max_retries=0)
        async def betray_in_step(ctx: Context, card: Secret[str]) -> None:
            def fail() -> None:
                raise RuntimeError(f"declined: {card.reveal()}")

            await ctx.step("pay", fail)

        @app.job(max_retries=5, breaker=Breaker("bank", failures=1, cooldown="1h"))
        async def break_down(card: Secret[str]) -> None:
            raise ConnectionError(f"bank is down for {card.reveal()}")

        @app.job
        async def report(note: str) -> str:
            return note

        self.give, self.betray, self.report = give, betray, report
        self.betray_in_step, self.break_down = betray_in_step, break_down

    async def run(self, worker: Worker) -> list[Any]:
        """Let one job of each sort come to its end, and return them."""
        app, card = self.app, Secret(f"{CANARY}-secret")
        headers = {"x-note": f"{CANARY}-header"}
        given = await self.give.using(headers=headers).aenqueue(note=f"{CANARY}-note", card=card)
        await in_state(given, State.SCHEDULED)
        await app.asend_event("paid", f"{CANARY}-event")
        betrayed = await self.betray.aenqueue(card=card, password=f"{CANARY}-password")
        in_step = await self.betray_in_step.aenqueue(card=card)
        broken = await self.break_down.aenqueue(card=card)
        draft = self.report.draft(note=f"{CANARY}-schedule")
        await app.schedules.aput("nightly", draft, every="1h")
        tick = await app.schedules.arun("nightly")
        chained = self.report.draft(note=f"{CANARY}-flow")
        flow = await app.chain(chained, self.report.draft(note=f"{CANARY}-last")).aenqueue()
        await in_state(given, State.COMPLETED)
        for dead in (betrayed, in_step):
            await in_state(dead, State.DEAD)
        for done in (tick, flow):
            await in_state(done, State.COMPLETED)
        await until(lambda: worker._state.sample is not None)
        return [given, betrayed, in_step, broken, tick, flow]


async def looked_up() -> str:
    return f"{CANARY}-step"


def test_canaries_are_shown_only_on_request(shell: Shell, heard: io.StringIO, spans: Any) -> None:
    """Torture 50: in payload, header, result, step, event, schedule, error; at the finest level."""
    shell.ok("migrate")
    shop = Shop(shell)
    seen: dict[str, str] = {}

    async def main() -> list[Any]:
        async with serving(shop.app) as worker:
            handles = await asyncio.wait_for(shop.run(worker), 6 * PROMPT)
            seen["metrics"] = worker._parts.status.page()
        await shop.app.aclose()
        return handles

    handles = asyncio.run(main())
    seen["logs"] = heard.getvalue()
    seen["spans"] = "".join(span.to_json() for span in spans.get_finished_spans())
    for form in ([], ["--json"]):
        for command in [*LISTINGS, *(["why", each.id] for each in handles)]:
            said = shell(*command, *form)
            seen[f"{command} {form}"] = said.out + said.err
    for where, text in seen.items():
        assert len(text) > 10, f"{where} says something at all"
        assert CANARY not in text, where
    assert "card ***, password=***" in seen["logs"], "it was planted there"
    given, tick = handles[0], handles[4]
    told = "".join(shell.ok("jobs", "show", each.id).out for each in (given, tick))
    for asked in ("note", "header", "event", "step", "schedule"):
        assert f"{CANARY}-{asked}" in told, "who asks for the job itself gets what is no secret"
    shown = told + "".join(shell.ok("jobs", "show", each.id).out for each in handles)
    assert f"{CANARY}-secret" not in shown
    assert f"{CANARY}-password" not in shown
