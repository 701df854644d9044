"""Owns something that runs, as far as the lines go that are written inside of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from windlass.core.payloads.redaction import Redaction


@dataclass
class Inside:
    """What a run tells to those who write lines inside of it."""

    log_fields: Mapping[str, object]
    redaction: Redaction = field(default_factory=Redaction)
