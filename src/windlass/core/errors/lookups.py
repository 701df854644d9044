"""Owns errors about names and ids that do not exist, and moves that a state does not allow."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from windlass.core.errors.base import WindlassError


class UnknownKind(WindlassError):
    """A kind for which no handler is registered in this app.

    Remedy:
        Import the module of the handler, name it in `imports=`, or correct the name; give a
        renamed handler its old name in `aliases=`.
    """

    def __init__(self, kind: str, known: tuple[str, ...] = ()) -> None:
        super().__init__(kind, known)
        self.kind = kind
        self.known = known

    def __str__(self) -> str:
        near = f" Did you mean {' or '.join(self.known)}?" if self.known else ""
        return (
            f"UnknownKind({self.kind!r}): no handler is registered; is its module imported?{near}"
        )


class UnknownJob(WindlassError):
    """An id that no job has, or no longer has.

    Remedy:
        Check the id and the store (`--url`, `--app`); a finished job is deleted after its
        retention.
    """

    def __init__(self, job_id: UUID | str) -> None:
        super().__init__(job_id)
        self.job_id = job_id

    def __str__(self) -> str:
        named = "the id" if isinstance(self.job_id, UUID) else "an id that starts with"
        return (
            f"no job has {named} {self.job_id}; it may be in another store, or it finished and "
            "its retention has passed"
        )


class AmbiguousId(WindlassError):
    """The beginning of an id that several jobs have.

    Remedy:
        Give more digits of the id.
    """

    LISTED = 5
    """How many of the jobs the message names."""

    def __init__(self, prefix: str, candidates: Sequence[str]) -> None:
        super().__init__(prefix, candidates)
        self.prefix = prefix
        self.candidates = candidates
        """Some of the jobs, each by its id, kind and state."""

    def __str__(self) -> str:
        more = " and others" if len(self.candidates) > self.LISTED else ""
        listed = ", ".join(self.candidates[: self.LISTED]) + more
        return f"the prefix {self.prefix} matches several ids: {listed}; add more digits"


class UnknownSchedule(WindlassError):
    """A name that no schedule has in this store.

    Remedy:
        List the names with `windlass schedules list`; a schedule in code exists once a
        worker of that app has run.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return (
            f"there is no schedule {self.name!r}; `windlass schedules list` shows all, and those "
            "declared in an app's code appear once a worker has run"
        )


class InvalidTransition(WindlassError):
    """A move that the job's state does not allow.

    Remedy:
        Do what the message says: it names the job's state, and which action is possible
        there.
    """

    def __init__(self, job_id: UUID, state: str, move: str, remedy: str) -> None:
        super().__init__(job_id, state, move, remedy)
        self.job_id = job_id
        self.state = state
        self.move = move
        self.remedy = remedy

    def __str__(self) -> str:
        return f"cannot {self.move}: job {self.job_id} is {self.state}; {self.remedy}"
