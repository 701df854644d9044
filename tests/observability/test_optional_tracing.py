"""Tracing is off unless it is wanted, and what goes wrong in it fails no job."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from tests.observability.spans import Spans, sdk, trace
from tests.support.app_on_store import Bed, in_state, log_lines, on_embedded_stores, serving
from windlass import PermanentError, State
from windlass.observability import traces


@on_embedded_stores
def test_off_is_off_and_without_a_provider_nothing_is_sent_along(
    bed: Bed, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = bed.app(traces="off")

    @app.job
    def work() -> None:
        pass

    assert work.enqueue().info().headers == {}
    assert len(app.layers) == 1, "the lines about runs alone"
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    app.configure(traces="on")
    assert work.enqueue().info().headers == {}
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
    await app.arun_worker(burst=True)

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
        raise PermanentError("its own error")

    async def main() -> None:
        async with serving(app):
            assert await (await work.aenqueue()).aresult("60s") == 1
            dead = await in_state(await break_down.aenqueue(), State.DEAD)
            assert dead.error is not None
            assert "its own error" in dead.error.message

    asyncio.run(main())
    (line,) = log_lines(caplog, "traces.failed")
    assert line["step"] == step
