"""The meaning of every field of the JSON documents of `--json` and of the API.

A shape is an object with known fields. `COMMANDS` and `ROUTES` say which shape a document has.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from windlass.core.document_fields import chaos, figures, jobs, operations
from windlass.core.document_fields.field import EACH, Field, Fields

__all__ = ["COMMANDS", "EACH", "ROUTES", "SHAPES", "Field", "Fields", "field_of"]

SHAPES: Mapping[str, Fields] = MappingProxyType(
    {
        **jobs.SHAPES,
        **operations.SHAPES,
        **figures.SHAPES,
        **chaos.SHAPES,
        "job with reasons": {
            **jobs.SHAPES["job"],
            "reasons": Field("Why it does not run, or how it ended.", "reason"),
            "actions": Field("What operators did to it.", "audit entry"),
        },
        "flow with jobs": {
            **jobs.SHAPES["flow"],
            "states": "How many of its jobs are in which state.",
            "parts": Field("Its jobs, those that are alike together.", "part of a flow"),
        },
    }
)
"""Every shape by its name."""

COMMANDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "audit list": ("audit log",),
        "breakers auto": ("changed breaker",),
        "breakers close": ("changed breaker",),
        "breakers list": ("breakers",),
        "breakers open": ("changed breaker",),
        "breakers probe": ("changed breaker",),
        "breakers show": ("breaker with history",),
        "bulk list": ("bulk operations",),
        "bulk pause": ("bulk operation",),
        "bulk resume": ("bulk operation",),
        "bulk show": ("bulk operation",),
        "bulk stop": ("bulk operation",),
        "chaos": ("report of chaos",),
        "check": ("deploy check",),
        "dead groups": ("groups of errors",),
        "dead list": ("page of jobs",),
        "dead purge": ("bulk result", "bulk operation"),
        "dead redrive": ("bulk result", "bulk operation"),
        "dead show": ("job",),
        "deploys list": ("deploys",),
        "deploys mark": ("deploy",),
        "doctor": ("doctor's report",),
        "enqueue": ("enqueued job",),
        "events send": ("event to send",),
        "events show": ("event",),
        "flows cancel": ("flow",),
        "flows list": ("page of flows",),
        "flows show": ("flow with jobs",),
        "jobs cancel": ("moved jobs", "bulk result", "bulk operation"),
        "jobs list": ("page of jobs",),
        "jobs purge": ("bulk result", "bulk operation"),
        "jobs retry": ("moved jobs",),
        "jobs run": ("local run",),
        "jobs show": ("job with reasons",),
        "keys new": ("new key",),
        "keys rotate": ("rotation",),
        "limits list": ("limits",),
        "limits reset": ("reset limit",),
        "limits set": ("limit",),
        "migrate": ("migration",),
        "queues list": ("queues",),
        "queues pause": ("pause",),
        "queues resume": ("pause",),
        "restored cancel": ("decided jobs",),
        "restored list": ("parked jobs",),
        "restored missing": ("missing jobs",),
        "restored park": ("parked store",),
        "restored release": ("decided jobs",),
        "schedules list": ("schedules",),
        "schedules next": ("next ticks",),
        "schedules pause": ("changed schedule",),
        "schedules remove": ("removed schedule",),
        "schedules resume": ("changed schedule",),
        "schedules run": ("enqueued job",),
        "schedules show": ("schedule with payload",),
        "slo": ("targets",),
        "stats": ("figures",),
        "why": ("why",),
        "workers": ("workers",),
    }
)
"""The shapes of the document that a command writes; several where options choose."""

ROUTES: Mapping[str, str] = MappingProxyType(
    {
        "/audit": "audit log",
        "/breakers": "breakers",
        "/bulk": "bulk operations",
        "/bulk/{id}": "bulk operation",
        "/deploys": "deploys",
        "/doctor": "doctor's report",
        "/errors": "groups of errors",
        "/flows/{id}": "flow with jobs",
        "/jobs": "page of jobs",
        "/jobs/{id}": "job",
        "/jobs/{id}/why": "why",
        "/limits": "limits",
        "/schedules": "schedules",
        "/stats": "figures",
        "/suggestions": "suggestions",
        "/workers": "workers",
    }
)
"""The shape of the document with which a route of the API answers."""


def field_of(given: Field | str) -> Field:
    """Return a field whose text alone may be written."""
    return given if isinstance(given, Field) else Field(given)
