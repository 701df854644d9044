"""Owns the independent ledger: what processes did, in append-only files, fsynced, not Windlass.

Each process has a file of its own, and each line is one `write`: a killed process leaves whole
lines. Times are those of the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

VARIABLE = "CHAOS_LEDGER"
"""The environment variable that names the ledger's directory to processes."""


class Entry(Struct, frozen=True, array_like=True):
    """A line: what happened when, in which process, for which attempt of which job."""

    what: str
    at: float
    pid: int
    job: str = ""
    attempt: int = 0
    name: str = ""
    """The kind of a job, the name of a step, or that of a fault."""
    mark: str = ""
    """The mark of a run, or the key and place of a job."""


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Entry)


class Ledger:
    """Writes the file of this process, and reads those of all."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file = -1
        self._pid = 0

    @classmethod
    def of_environment(cls) -> Ledger:
        """Return the ledger that the environment names, or one in the working directory."""
        return cls(Path(os.environ.get(VARIABLE, "chaos-ledger")))

    def write(
        self, what: str, *, job: str = "", attempt: int = 0, name: str = "", mark: str = ""
    ) -> float:
        """Append a line, and return its time once the line is on the disk."""
        entry = Entry(what, time.monotonic(), os.getpid(), job, attempt, name, mark)
        self._append([entry])
        return entry.at

    def write_all(self, what: str, jobs: Sequence[tuple[str, str]], mark: str = "") -> None:
        """Append a line for each job and its kind, and return once all are on the disk."""
        now, pid = time.monotonic(), os.getpid()
        self._append([Entry(what, now, pid, job, 0, kind, mark) for job, kind in jobs])

    def has(self, pid: int) -> bool:
        """Return whether a process has written a line."""
        return (self._directory / f"{pid}.jsonl").exists()

    def entries(self) -> list[Entry]:
        """Return the lines of all processes, in the order of their times."""
        found: list[Entry] = []
        for path in sorted(self._directory.glob("*.jsonl")):
            # A machine that lost its power may leave the last line of a file unfinished.
            whole = path.read_bytes().rpartition(b"\n")[0]
            found += map(_decoder.decode, whole.splitlines())
        return sorted(found, key=lambda entry: entry.at)

    def _append(self, entries: Sequence[Entry]) -> None:
        file = self._open()
        os.write(file, b"".join(_encoder.encode(each) + b"\n" for each in entries))
        os.fsync(file)

    def _open(self) -> int:
        # Again after a fork: two processes never share a file.
        if self._pid != os.getpid():
            self._directory.mkdir(parents=True, exist_ok=True)
            path = self._directory / f"{os.getpid()}.jsonl"
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            self._pid = os.getpid()
        return self._file
