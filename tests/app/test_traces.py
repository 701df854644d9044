"""Spans: the producer's and the consumer's are linked through the job's headers, by any way in."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.app.bed import Bed, in_state, on_embedded_stores, serving, told, until
from windlass import ConfigError, Permanent, Snooze, State
from windlass.observe import traces

trace = pytest.importorskip("opentelemetry.trace", reason="pip install windlass[dev]")
sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="pip install windlass[dev]")
exporting = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

FOREIGN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Spans:
    """What was traced since the test began."""

    def __init__(self) -> None:
        self.exporter = exporting.InMemorySpanExporter()
        self.provider = sdk.TracerProvider()
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor

        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def named(self, name: str) -> list[ReadableSpan]:
        return [each for each in self.exporter.get_finished_spans() if each.name == name]

    def only(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    """Yield what is traced, by a provider that is this process's for one test."""
    made = Spans()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", made.provider)
    yield made
    made.provider.shutdown()


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
def test_every_attempt_has_a_span_and_an_error_is_told_without_its_secrets(
    bed: Bed, spans: Spans
) -> None:
    app = bed.app(redact=["shoe_size"])
    leak = "shoe_size=S3cret"

    @app.job(max_retries=1)
    async def fail() -> None:
        if len(spans.named("process default")) == 1:
            raise Permanent(leak)
        raise ValueError(leak)

    async def main() -> None:
        handle = await fail.aenqueue()
        async with serving(app):
            await in_state(handle, State.SCHEDULED)
            await app.control.retry(handle.id)
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
    async def later() -> Snooze:
        return Snooze("1h")

    async def main() -> None:
        handle = await later.aenqueue()
        async with serving(app):
            await in_state(handle, State.SCHEDULED)
            await until(lambda: spans.named("process default"))

    asyncio.run(main())
    assert spans.only("process default").status.status_code is trace.StatusCode.UNSET


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
            await in_state(app.job_by_id(made[0]), State.COMPLETED)
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
        assert (await handle.ajob()).headers == {"traceparent": header}
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


@on_embedded_stores
def test_off_is_off_and_without_a_provider_nothing_is_sent_along(
    bed: Bed, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = bed.app(traces="off")

    @app.job
    def work() -> None:
        pass

    assert work.enqueue().job().headers == {}
    assert len(app.layers) == 1, "the lines about runs alone"
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    app.configure(traces="on")
    assert work.enqueue().job().headers == {}
    assert spans.exporter.get_finished_spans() == ()


def test_nothing_of_opentelemetry_is_imported_unless_somebody_has() -> None:
    program = """
import asyncio, sys
from windlass import Windlass

app = Windlass("memory://")

@app.job
async def work() -> None:
    pass

async def main():
    await work.aenqueue()
    await app.run_worker(burst=True)

asyncio.run(main())
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_traces_that_are_wanted_and_cannot_be_had_are_an_error_with_its_remedy() -> None:
    program = """
import sys
sys.modules["opentelemetry"] = None
from windlass import ConfigError, Windlass

app = Windlass("memory://", traces="on")
try:
    app.worker()
except ConfigError as error:
    assert "pip install windlass[otel]" in str(error), error
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.parametrize("step", ["start", "end"])
@on_embedded_stores
def test_a_span_processor_that_raises_fails_no_enqueue_and_no_run(
    bed: Bed,
    spans: Spans,
    step: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the exporter is gone")

    processor = sdk.SpanProcessor()
    monkeypatch.setattr(processor, f"on_{step}", fail, raising=False)
    spans.provider.add_span_processor(processor)
    monkeypatch.setattr(traces._Known, "broken", set())
    app = bed.app()

    @app.job
    async def work() -> int:
        return 1

    @app.job(max_retries=0)
    async def break_down() -> None:
        raise Permanent("its own error")

    async def main() -> None:
        async with serving(app):
            assert await (await work.aenqueue()).aresult("10s") == 1
            dead = await in_state(await break_down.aenqueue(), State.DEAD)
            assert dead.error is not None
            assert "its own error" in dead.error.message

    asyncio.run(main())
    (line,) = told(caplog, "traces.failed")
    assert line["step"] == step
