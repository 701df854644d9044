"""Owns the page of the states of a job and the moves between them."""

from __future__ import annotations

from tools.site.reference.chapter import Chapter, Page
from tools.site.reference.docstrings import attribute_docs
from tools.site.reference.markdown import code, marked, table
from windlass import State
from windlass.core.jobs.states import LEGAL, LIVE

_PATH = "reference/states.md"


def _anchor(name: str) -> str:
    return f"state-{name}"


def _pages() -> list[Page]:
    docs = attribute_docs(State)
    rows = [
        (
            marked(_anchor(each.value), code(each.value)),
            "live" if each in LIVE else "finished",
            docs[each.name],
            ", ".join(code(after.value) for after in State if after in LEGAL[each]) or "nothing",
        )
        for each in State
        if each.name in docs
    ]
    text = (
        "# States of a job\n\n"
        "A job is in one of six states. Every store refuses any other move than these. What causes "
        "a move: [Architecture](../architecture.md#states); what is promised about it: "
        "[Guarantees](../guarantees.md).\n\n"
    )
    return [Page(_PATH, text + table(["state", "", "a job in it", "may become"], rows))]


CHAPTER = Chapter(
    subject="state",
    title="States of a job",
    summary="the six states, and which state may follow which",
    path=_PATH,
    names=lambda: [each.value for each in State],
    anchor=_anchor,
    pages=_pages,
    remedy="write a docstring below it in windlass.State",
)
