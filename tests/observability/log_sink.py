"""Owns the stream to which tests of log lines write."""

from __future__ import annotations

import io
import json
from typing import Any

JOB = {"job_id": "J1", "worker_id": "w1", "kind": "send_email", "queue": "mail", "attempt": 2}


class Sink(io.StringIO):
    """A stream that counts its writes and says whether it is a terminal."""

    def __init__(self, *, terminal: bool = False) -> None:
        super().__init__()
        self.terminal = terminal
        self.writes: list[str] = []

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str, /) -> int:
        self.writes.append(text)
        return super().write(text)

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


# What never raises.


class Rude:
    """A value that cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no")
