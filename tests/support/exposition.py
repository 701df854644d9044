"""Owns a strict reader of Prometheus' text format, written from its definition, not from ours."""

from __future__ import annotations

import re
from typing import NamedTuple

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (-?[0-9.e+-]+|[+-]Inf|NaN)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\["\\n])*)"(?:,|$)')
_ESCAPED = re.compile(r'\\(["\\n])')
_PARTS = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}


class Sample(NamedTuple):
    """A line: the name of its family, its own, its labels as they were meant, and its value."""

    family: str
    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


def parse(page: str) -> list[Sample]:
    """Read a page; whatever Prometheus would refuse fails.

    Lines end with a line feed and nothing else. A family is told once and in one piece; no series
    is there twice.
    """
    page.encode()
    assert page.endswith("\n")
    samples: list[Sample] = []
    types: dict[str, str] = {}
    family = ""
    for line in page.split("\n")[:-1]:
        if line.startswith("# HELP "):
            continue
        if line.startswith("# TYPE "):
            _, _, family, kind = line.split(" ")
            assert family not in types, f"{family} is told twice"
            types[family] = kind
            continue
        samples.append(_sample(line, family))
        names = [family + part for part in _PARTS[types[family]]]
        assert samples[-1].name in names, f"{line!r} is among {family}"
    series = [(each.name, each.labels) for each in samples]
    assert len(set(series)) == len(series), "a series is there twice"
    return samples


def _sample(line: str, family: str) -> Sample:
    found = _SAMPLE.fullmatch(line)
    assert found is not None, f"no sample: {line!r}"
    name, inside, value = found.groups()
    labels, at = [], 0
    while at < len(inside or ""):
        label = _LABEL.match(inside, at)
        assert label is not None, f"no label: {line!r}"
        labels.append((label[1], _ESCAPED.sub(lambda it: it[1].replace("n", "\n"), label[2])))
        at = label.end()
    assert len(dict(labels)) == len(labels), f"a label is there twice: {line!r}"
    return Sample(family, name, tuple(labels), float(value))
