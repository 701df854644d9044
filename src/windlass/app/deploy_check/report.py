"""Owns the report of `windlass check`: its findings with remedies, and how much was looked at."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from msgspec import Struct, field

from windlass.core.documents import Facts
from windlass.core.values.text import plural

Subject = Literal["schema", "kind", "queue", "payload", "key", "step", "schedule", "limit", "code"]
"""What new code may not serve; `code`: a worker would refuse to start with it."""
_EXAMPLES = 5


class CheckFinding(Struct, frozen=True, kw_only=True):
    """Something that the new code does not serve, and the remedy."""

    subject: Subject
    name: str
    """The kind, the queue, the key, the schedule or the limit that it is about."""
    problem: str
    remedy: str
    jobs: int = 0
    """How many of the jobs that were looked at it concerns."""
    examples: tuple[UUID, ...] = ()
    """The ids of some of them."""

    def document(self) -> Facts:
        """Return the finding for scripts."""
        return {
            "subject": self.subject,
            "name": self.name,
            "problem": self.problem,
            "remedy": self.remedy,
            "jobs": self.jobs,
            "examples": [str(each) for each in self.examples],
        }


class CheckReport(Struct, kw_only=True):
    """The findings, and how many of the unfinished jobs were looked at."""

    store: str
    findings: list[CheckFinding] = field(default_factory=list)
    looked_at: int = 0
    unfinished: int = 0
    """How many jobs are scheduled, pending or running."""
    capped: bool = False
    """Whether there are more of them, which were not counted."""
    schedules: int = 0
    """How many schedules were looked at."""
    complete: bool = True
    """Whether every unfinished job and every schedule was looked at."""

    def document(self) -> Facts:
        """Return the report for scripts."""
        return {
            "ok": not self.findings,
            "store": self.store,
            "looked_at": self.looked_at,
            "unfinished": self.unfinished,
            "capped": self.capped,
            "schedules": self.schedules,
            "complete": self.complete,
            "findings": [each.document() for each in self.findings],
        }

    def extent(self) -> str:
        """Return how much was looked at, for people."""
        schedules = plural(self.schedules, "schedule")
        if self.complete:
            return f"looked at all unfinished jobs ({self.looked_at:,}) and {schedules}"
        more = "or more " if self.capped else ""
        return (
            f"looked at a sample of {self.looked_at:,} of {self.unfinished:,} {more}unfinished "
            f"jobs, and {schedules}"
        )


class Concerned(Struct):
    """The jobs that a finding concerns: their number, and some of them."""

    count: int = 0
    examples: list[UUID] = field(default_factory=list)

    def add(self, job: UUID) -> None:
        self.count += 1
        if len(self.examples) < _EXAMPLES:
            self.examples.append(job)
