"""Owns the spans that a test has recorded, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan


trace = pytest.importorskip("opentelemetry.trace", reason="pip install windlass[dev]")
sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="pip install windlass[dev]")
exporting = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")


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
