"""Owns the page of metrics, by what they are about."""

from __future__ import annotations

from tools.site.reference.chapter import Chapter, Page
from tools.site.reference.markdown import code, marked, table
from windlass.core.metrics import families
from windlass.core.metrics.families import FAMILIES

_PATH = "reference/metrics.md"
_PARTS = {
    "Jobs and calls to the store": families.OF_RUNS,
    "Processes": families.OF_PROCESSES,
    "Supervisor": families.OF_SUPERVISOR,
    "The whole cluster": families.OF_CLUSTER,
}


def _anchor(name: str) -> str:
    return name


_INTRO = (
    "# Metrics\n\n"
    "Every metric at `/metrics`. How to scrape them, how accurate they are, alerts and the "
    "dashboard: [Metrics and health](../metrics.md).\n"
)


def _pages() -> list[Page]:
    parts = [_INTRO]
    for title, group in _PARTS.items():
        rows = [
            (
                marked(_anchor(each.name), code(each.name)),
                each.type,
                ", ".join(each.labels),
                each.doc,
            )
            for each in group
            if each.doc
        ]
        parts.append(f"## {title}\n\n" + table(["metric", "type", "labels", "what it is"], rows))
    return [Page(_PATH, "\n".join(parts))]


CHAPTER = Chapter(
    subject="metric",
    title="Metrics",
    summary="every metric with its type and labels",
    path=_PATH,
    names=lambda: FAMILIES,
    anchor=_anchor,
    pages=_pages,
    remedy="give it a help, and add its group to tools/site/reference/metrics.py",
)
