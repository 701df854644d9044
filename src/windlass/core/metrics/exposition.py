"""Owns the text format of metrics for Prometheus, and the bounds on label values."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Literal, NamedTuple

from windlass.core.values.text import inert

Type = Literal["counter", "gauge", "histogram"]
Labels = tuple[str, ...]
OTHER = "other"
"""The label of everything beyond the bound on names."""
NAMES = 200
"""How many queues, and how many kinds, have a label of their own."""
LABEL_LIMIT = 128
_DIGITS = 10
_HASHED = re.compile(f"~[0-9a-f]{{{_DIGITS}}}$")
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Family(NamedTuple):
    """A metric: its name, type, help text and labels."""

    name: str
    type: Type
    doc: str
    labels: Labels = ()
    bounds: tuple[float, ...] = ()
    """The upper bounds of a histogram's buckets; the last, infinite one is not among them."""


class Buckets(NamedTuple):
    """A histogram's value: how many are within each bound, how many in all, and their sum."""

    counts: Sequence[int]
    total: float


Value = float | Buckets
Series = Mapping[Labels, Value]
"""The values of one family by its labels, in the family's order."""


def exposition(families: Iterable[Family], values: Mapping[str, Series]) -> str:
    """Write metrics in Prometheus' text format; families without a value are left out."""
    lines: list[str] = []
    for family in families:
        series = values.get(family.name)
        if not series:
            continue
        lines.append(f"# HELP {family.name} {_escaped(family.doc)}")
        lines.append(f"# TYPE {family.name} {family.type}")
        unique: dict[Labels, Value] = {}
        for labels, value in series.items():
            # Prometheus refuses the whole page for one duplicate series.
            unique.setdefault(tuple(map(label_of, labels)), value)
        for labels, value in unique.items():
            lines += _lines(family, labels, value)
    return "\n".join([*lines, ""])


def label_of(name: str) -> str:
    """Return the label for a name: itself, if it is short and printable.

    Any other is cut and escaped, and ends in a hash that distinguishes it from those that then look
    alike. A name that looks as if it had a hash gets one, too, so that none can pass for another.
    """
    shown = inert(name)
    if shown == name and len(name) <= LABEL_LIMIT and not _HASHED.search(name):
        return name
    digest = sha256(name.encode(errors="surrogatepass")).hexdigest()[:_DIGITS]
    return f"{shown[: LABEL_LIMIT - _DIGITS - 1]}~{digest}"


def bounded(queues: Mapping[str, float], most: int = NAMES) -> dict[str, str]:
    """Return a label for each name, within the bound: the heaviest keep theirs, the rest is
    `other`."""
    kept = set(sorted(queues, key=lambda name: (-queues[name], name))[:most])
    return {name: name if name in kept else OTHER for name in queues}


def _lines(family: Family, labels: Labels, value: Value) -> Iterable[str]:
    pairs = [f'{name}="{_quoted(each)}"' for name, each in zip(family.labels, labels, strict=True)]
    if not isinstance(value, Buckets):
        return [f"{family.name}{_braced(pairs)} {_number(value)}"]
    lines = []
    for bound, count in zip((*family.bounds, math.inf), value.counts, strict=True):
        within = [*pairs, f'le="{_number(bound)}"']
        lines.append(f"{family.name}_bucket{_braced(within)} {count}")
    lines.append(f"{family.name}_sum{_braced(pairs)} {_number(value.total)}")
    lines.append(f"{family.name}_count{_braced(pairs)} {value.counts[-1]}")
    return lines


def _braced(pairs: Sequence[str]) -> str:
    return "{" + ",".join(pairs) + "}" if pairs else ""


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', '\\"')


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
