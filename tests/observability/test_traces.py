"""Spans: the producer's and the consumer's are linked through the job's headers, by any way in."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.support.app_on_store import (
    Bed,
    Clock,
    Through,
    in_state,
    on_embedded_stores,
    serving,
    until,
)
from windlass import ConfigError, PermanentError, Snooze, State, StoreUnavailable
from windlass.core.jobs.queries import JobFilter
from windlass.worker.services.schedules.schedule_ticker import ScheduleTicker

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
from tests.observability.spans import Spans, trace

FOREIGN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_a_run_is_in_the_trace_of_its_producer_and_linked_to_its_span(
    bed: Bed, spans: Spans
) -> None:
    app = bed.app()

    @app.job(queue="mail")
    async def send(to: str) -> None:
        with trace.get_tracer("user").start_as_current_span("smtp"):
            pass

    async def main() -> None:
        with trace.get_tracer("user").start_as_current_span("request"):
            handle = await send.aenqueue("ada")
        async with serving(app) as worker:
            await in_state(handle, State.COMPLETED)
            await until(lambda: spans.named("process mail"))
        request, sent = spans.only("request"), spans.only("enqueue mail")
        run, smtp = spans.only("process mail"), spans.only("smtp")
        assert sent.parent is not None
        assert sent.parent.span_id == id_of(request)
        assert run.parent is not None
        assert run.parent.span_id == id_of(sent)
        assert [link.context.span_id for link in run.links] == [id_of(sent)]
        assert smtp.parent is not None
        assert smtp.parent.span_id == id_of(run)
        assert (sent.kind, run.kind) == (trace.SpanKind.PRODUCER, trace.SpanKind.CONSUMER)
        about = {
            "messaging.system": "windlass",
            "messaging.destination.name": "mail",
            "messaging.message.id": str(handle.id),
            "messaging.message.body.size": len(b'{"to":"ada"}'),
            "windlass.kind": "send",
        }
        assert attributes_of(sent) == {
            **about,
            "messaging.operation.name": "enqueue",
            "messaging.operation.type": "send",
        }
        assert attributes_of(run) == {
            **about,
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.client.id": worker.id,
            "windlass.attempt": 1,
        }

    asyncio.run(main())


@on_embedded_stores
def test_blocking_code_and_handlers_in_threads_are_traced_alike(bed: Bed, spans: Spans) -> None:
    app = bed.app()

    @app.job
    def work() -> None:
        with trace.get_tracer("user").start_as_current_span("inside"):
            pass

    handles = [work.enqueue(), *app.enqueue_many([work.draft(), work.draft()])]

    async def main() -> None:
        async with serving(app):
            for handle in handles:
                await in_state(handle, State.COMPLETED)
            await until(lambda: len(spans.named("process default")) == 3)

    asyncio.run(main())
    one, many = spans.named("enqueue default")
    assert attributes_of(many)["messaging.batch.message_count"] == 2
    parents = [span.parent.span_id for span in spans.named("process default") if span.parent]
    assert sorted(parents) == sorted([id_of(one), id_of(many), id_of(many)])
    inner = {span.parent.span_id for span in spans.named("inside") if span.parent}
    assert inner == {id_of(span) for span in spans.named("process default")}


@on_embedded_stores
def test_every_attempt_has_a_span_and_its_error_shows_no_secrets(bed: Bed, spans: Spans) -> None:
    app = bed.app(redact=["shoe_size"])
    leak = "shoe_size=S3cret"

    @app.job(max_retries=1)
    async def fail() -> None:
        if len(spans.named("process default")) == 1:
            raise PermanentError(leak)
        raise ValueError(leak)

    async def main() -> None:
        handle = await fail.aenqueue()
        async with serving(app):
            await in_state(handle, State.SCHEDULED)
            await app.control.aretry(handle.id)
            await in_state(handle, State.DEAD)
            await until(lambda: len(spans.named("process default")) == 2)

    asyncio.run(main())
    first, second = spans.named("process default")
    assert [attributes_of(each)["windlass.attempt"] for each in (first, second)] == [1, 2]
    assert attributes_of(first)["error.type"] == "ValueError"
    assert first.status.status_code is trace.StatusCode.ERROR
    assert [event.name for event in first.events] == ["exception"]
    assert "S3cret" not in first.to_json() + second.to_json()


@on_embedded_stores
def test_a_run_that_is_put_off_is_no_error(bed: Bed, spans: Spans) -> None:
    app = bed.app()

    @app.job
    async def later() -> Snooze | None:
        return Snooze("1h")

    async def main() -> None:
        handle = await later.aenqueue()
        async with serving(app):
            await in_state(handle, State.SCHEDULED)
            await until(lambda: spans.named("process default"))

    asyncio.run(main())
    assert spans.only("process default").status.status_code is trace.StatusCode.UNSET


def test_the_jobs_of_a_flow_are_in_the_trace_of_its_enqueue(bed: Bed, spans: Spans) -> None:
    app = bed.app()

    @app.job
    async def part(number: int) -> int:
        return number

    @app.job
    async def join() -> None:
        pass

    async def main() -> None:
        with trace.get_tracer("user").start_as_current_span("request"):
            flow = app.group([part.draft(n) for n in range(2)], then=join.draft())
            handle = await flow.aenqueue()
        async with serving(app):
            await in_state(handle, State.COMPLETED)
            await until(lambda: len(spans.named("process default")) == 4)
        sent = spans.only("enqueue default")
        assert attributes_of(sent)["messaging.message.conversation_id"] == str(handle.id)
        assert attributes_of(sent)["messaging.batch.message_count"] == 4
        for run in spans.named("process default"):
            assert run.parent is not None
            assert run.parent.span_id == id_of(sent)
            assert attributes_of(run)["messaging.message.conversation_id"] == str(handle.id)

    asyncio.run(main())


def test_a_job_that_a_schedule_makes_has_a_producer_in_the_worker_that_ticks(
    bed: Bed, spans: Spans
) -> None:
    """Prevents runs of schedules that begin nowhere, so that nobody sees which tick they are of."""
    app = bed.app()

    @app.every("1s", name="nightly", queue="reports")
    async def report() -> None:
        pass

    async def main() -> None:
        async with serving(app):
            await until(lambda: len(spans.named("process reports")) == 2)
        sent = {id_of(span): span for span in spans.named("enqueue reports")}
        runs = spans.named("process reports")
        for run in runs:
            assert run.parent is not None
            made = sent[run.parent.span_id]
            assert (made.kind, made.parent) == (trace.SpanKind.PRODUCER, None)
            assert [link.context.span_id for link in run.links] == [id_of(made)]
            same = ("messaging.message.id", "messaging.destination.name", "windlass.kind")
            about, of_run = attributes_of(made), attributes_of(run)
            assert [about[name] for name in same] == [of_run[name] for name in same]
            assert about["windlass.schedule"] == "nightly"
        traced = {span.context.trace_id for span in sent.values() if span.context}
        assert len(traced) == len(sent), "each tick is a trace of its own"

    asyncio.run(main())


@on_embedded_stores
def test_a_tick_that_somebody_else_made_or_nobody_could_write_has_no_span(
    bed: Bed, spans: Spans
) -> None:
    clock = Clock()
    store = bed.store(clock=clock)
    app = bed.app(store=store)

    @app.every("1m", name="nightly")
    async def report() -> None:
        pass

    class Forgetful(Through):
        async def apply(self, names: Any, decide: Any) -> Any:
            def twice(records: Any, now: Any) -> Any:
                decide(records, now)
                return decide(records, now)

            return await self.inner.apply(names, twice)

    class Broken(Through):
        async def apply(self, names: Any, decide: Any) -> Any:
            def fail(records: Any, now: Any) -> Any:
                decide(records, now)
                raise StoreUnavailable("gone")

            return await self.inner.apply(names, fail)

    def ticker(of: Any) -> ScheduleTicker:
        declared = app.schedules.declared
        kinds = dict.fromkeys(app.registry)
        return ScheduleTicker(of, kinds=kinds, declared=declared, ids=app.ids.next, traces="auto")

    async def main() -> None:
        one, other, broken = ticker(Forgetful(store)), ticker(store), ticker(store)
        for each in (one, other, broken):
            await each.tick()
        clock.advance(minutes=1)
        broken._store = Broken(store)
        with pytest.raises(StoreUnavailable):
            await broken.tick()
        assert spans.named("enqueue default") == [], "it is not in the store"
        await one.tick()
        await other.tick()
        (made,) = (await store.find(JobFilter(), limit=10)).jobs
        (sent,) = spans.named("enqueue default")
        assert attributes_of(sent)["messaging.message.id"] == str(made.id)
        assert f"{id_of(sent):016x}" in made.headers["traceparent"], "it was decided twice"

    asyncio.run(main())


@pytest.mark.parametrize("bed", ["postgres"], indirect=True)
def test_a_context_from_sql_goes_through(bed: Bed, spans: Spans) -> None:
    app = bed.app()

    @app.job
    async def work() -> None:
        pass

    job = {"kind": "work", "headers": {"traceparent": FOREIGN, "tracestate": "a=b"}}
    with psycopg.connect(bed.url) as db:
        (made,) = db.execute("SELECT windlass.enqueue(%s)", [json.dumps(job)]).fetchall()

    async def main() -> None:
        async with serving(app):
            await in_state(app.handle(made[0]), State.COMPLETED)
            await until(lambda: spans.named("process default"))

    asyncio.run(main())
    parent = spans.only("process default").parent
    assert parent is not None
    assert f"{parent.trace_id:032x}-{parent.span_id:016x}" in FOREIGN
    assert parent.trace_state == {"a": "b"}


@on_embedded_stores
@pytest.mark.parametrize("header", [FOREIGN, "nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_headers_that_the_producer_gave_stay_and_nonsense_begins_a_trace(
    bed: Bed, spans: Spans, header: str
) -> None:
    app = bed.app()

    @app.job
    async def work() -> None:
        pass

    async def main() -> None:
        handle = await work.using(headers={"traceparent": header}).aenqueue()
        assert (await handle.ainfo()).headers == {"traceparent": header}
        async with serving(app):
            await in_state(handle, State.COMPLETED)
            await until(lambda: spans.named("process default"))

    asyncio.run(main())
    assert (spans.only("process default").parent is None) is (header != FOREIGN)


@on_embedded_stores
def test_an_enqueue_that_fails_is_an_error_of_its_span(bed: Bed, spans: Spans) -> None:
    app = bed.app()

    @app.job
    async def work() -> None:
        pass

    with pytest.raises(ConfigError):
        app.enqueue_many([work.draft()], tx=object())
    assert attributes_of(spans.only("enqueue default"))["error.type"] == "windlass.ConfigError"
