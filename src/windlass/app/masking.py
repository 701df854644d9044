"""Owns how jobs are shown to people and scripts: messages decoded, secrets masked."""

from __future__ import annotations

import sys

from windlass.app.app import Windlass
from windlass.core.jobs.job import Job
from windlass.core.payloads.masked_job import masked
from windlass.core.payloads.redaction import Redaction


def redaction_of(app: Windlass) -> Redaction:
    """Return the redaction of an app's settings; nothing is cut, since scripts read it, too."""
    return Redaction(app.settings.redact, max_text=sys.maxsize)


def shown_job(app: Windlass, job: Job) -> Job:
    """Return a job as people see it: its messages readable, its secrets masked."""
    return masked(app.registry.readable(job), redaction_of(app))
