"""Owns what a person may do whose access is limited to some queues: searches, conditions, actions.

Each function lets everything pass where the access is not limited.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from msgspec.structs import replace
from starlette.exceptions import HTTPException

from windlass.core.jobs.queries import JobFilter, term_of_queues
from windlass.core.search.search import Search
from windlass.core.search.terms import Field, Term, Value
from windlass.core.values.text import listed
from windlass.web.access.roles import Access


class Reach(StrEnum):
    """What an action changes."""

    JOB = "a job"
    QUEUE = "a queue"
    SEARCH = "jobs that a search selects"
    OPERATION = "a bulk operation"
    NEW_JOB = "a new job"
    ALL = "several queues"


_REACHES = {
    **dict.fromkeys(("retry-job", "cancel-job", "redrive-job", "edit-job", "purge-job"), Reach.JOB),
    **dict.fromkeys(("pause-queue", "resume-queue"), Reach.QUEUE),
    **dict.fromkeys(("cancel-jobs", "redrive-jobs", "purge-jobs"), Reach.SEARCH),
    **dict.fromkeys(("pause-bulk", "resume-bulk", "stop-bulk"), Reach.OPERATION),
    "enqueue": Reach.NEW_JOB,
}


def reach_of(action: str) -> Reach:
    """Return what an action changes; one that is not known here may change every queue."""
    return _REACHES.get(action, Reach.ALL)


def offers(access: Access, action: str) -> bool:
    """Return whether an action can be offered to a person at all, whatever the role."""
    if action == "edit-job" and not access.payloads:
        return False
    return access.queues is None or reach_of(action) is not Reach.ALL


def check_whole(access: Access, what: str) -> None:
    """Refuse what is about every queue to a person who sees some.

    Raises:
        HTTPException: the access is limited.
    """
    if access.queues is not None:
        raise HTTPException(
            403,
            f"{what} concerns more than the queues of your login, which are {_names(access)}; ask "
            "a person whose login is not limited to queues",
        )


def check_queue(access: Access, queue: str) -> None:
    """Refuse a queue that a person does not see.

    Raises:
        HTTPException: it is none of theirs.
    """
    if not access.sees(queue):
        raise HTTPException(
            403,
            f"queue must be one of your login's, which are {_names(access)}, got {queue!r}; choose "
            "one of them",
        )


def narrowed(search: Search, access: Access) -> Search | None:
    """Return a search that finds jobs of a person's queues only; None: it can find none.

    A search that names queues keeps those of them that are the person's.
    """
    if access.queues is None:
        return search
    named = next((each for each in search.terms if _names_queues(each)), None)
    own = access.queues if named is None else tuple(_own_of(named, access.queues))
    if not own:
        return None
    rest = tuple(each for each in search.terms if each is not named)
    return replace(search, terms=(*rest, term_of_queues(own)))


def is_within(which: JobFilter, access: Access) -> bool:
    """Return whether conditions select no jobs but those of a person's queues."""
    if access.queues is None or which.queue in access.queues:
        return True
    return any(
        _names_queues(term)
        and all(not each.is_prefix and each.text in access.queues for each in term.values)
        for term in which.terms
    )


def _names_queues(term: Term) -> bool:
    return term.field is Field.QUEUE and not term.negated


def _own_of(term: Term, queues: tuple[str, ...]) -> Iterator[str]:
    return (each for each in queues if any(_fits(each, value) for value in term.values))


def _fits(queue: str, value: Value) -> bool:
    return queue.startswith(value.text) if value.is_prefix else queue == value.text


def _names(access: Access) -> str:
    return listed(access.queues or ()) or "none"
