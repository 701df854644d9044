"""Owns what a person may see of a job: masked as everywhere, and without data where not allowed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from msgspec.structs import replace

from windlass.app.app import Windlass
from windlass.app.masking import redaction_of, shown_job
from windlass.core.audit import AuditEntry
from windlass.core.documents import Facts, job_facts
from windlass.core.jobs.bulk import BulkOperation
from windlass.core.jobs.job import Job
from windlass.core.search.parser import parse
from windlass.core.search.terms import WITH_PATH, Term, Value
from windlass.web.access.roles import Access

HIDDEN = "hidden"
_DATA = ("payload", "result", "headers")
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")


def visible(app: Windlass, job: Job) -> Job:
    """Return a job with its messages readable, and its secrets masked."""
    return shown_job(app, job)


def visible_facts(job: Job, access: Access) -> Facts:
    """Return the document of a masked job, as this person may see it."""
    facts = job_facts(job)
    if access.payloads:
        return facts
    hidden = {name: HIDDEN for name in _DATA if facts[name] is not None}
    # Entries of another release are not read, so nothing of them is shown.
    steps = [
        {**each, "result": HIDDEN} if "result" in each else {"entry": HIDDEN}
        for each in facts["steps"]
    ]
    return {**facts, **hidden, "steps": steps}


def without_data(job: Job) -> Job:
    """Return a job without payload, result, headers and steps."""
    return replace(job, payload=b"null", result=None, headers={}, steps=())


def visible_entry(app: Windlass, entry: AuditEntry, access: Access) -> AuditEntry:
    """Return an entry of the audit log without values of payloads that this person may not see."""
    before, mark, written = f" {entry.detail}".partition(" search=")
    if not mark:
        return entry
    search, rate = _without_rate(written)
    shown = _visible_search(app, search, access)
    return replace(entry, detail=f"{before}{mark}{shown}{rate}".removeprefix(" "))


def visible_terms(app: Windlass, terms: Iterable[Term], access: Access) -> tuple[Term, ...]:
    """Return terms of a search without values of payloads that this person may not see."""
    redaction = redaction_of(app)
    return tuple(
        replace(term, values=(Value(HIDDEN),))
        if term.field in WITH_PATH and (not access.payloads or any(map(redaction.hides, term.path)))
        else term
        for term in terms
    )


def visible_operation(app: Windlass, operation: BulkOperation, access: Access) -> BulkOperation:
    """Return a bulk operation, masked, without values that this person may not see."""
    redaction, which = redaction_of(app), operation.which
    return replace(
        operation,
        which=replace(which, terms=visible_terms(app, which.terms, access)),
        reason=redaction.text(operation.reason),
        error=redaction.text(operation.error),
    )


def _without_rate(written: str) -> tuple[str, str]:
    """Split the end of a detail: the search, and the rate if one follows it."""
    search, mark, rate = written.rpartition(" rate=")
    is_rate = mark and rate and not any(each.isspace() for each in rate)
    return (search, mark + rate) if is_rate else (written, "")


def _visible_search(app: Windlass, written: str, access: Access) -> str:
    """Return a search of a detail; one that was cut off, and cannot be read, is hidden."""
    is_quoted = _QUOTED.fullmatch(written) is not None
    try:
        if not is_quoted and any(each.isspace() for each in written):
            raise ValueError(f"search must be quoted, got {written}")
        terms = parse(ast.literal_eval(written) if is_quoted else written).terms
    except (ValueError, SyntaxError):
        return redaction_of(app).text(written) if access.payloads else HIDDEN
    seen = visible_terms(app, terms, access)
    return written if seen == terms else repr(" ".join(map(str, seen)))
