"""Owns the list of the jobs that have begun in a process, readable after it has died.

A worker claims more jobs than have begun in it. When its process dies, those that had begun may
have killed it, and the others hardly: its supervisor reads here which had. The list is a file
without a name, whose descriptor both processes hold. Entries are only added; when a page of them is
full, those of the jobs that have not been settled are copied to the other page.

An entry is a number for the claim and not for the job, which may run more than once in a process.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterable
from uuid import UUID

from windlass.core.jobs.job import Job
from windlass.process.exits.shared_files import reserve, shared_file

_ENTRY_BYTES = 16
_PAGE_BYTES = 8_192 * _ENTRY_BYTES
_PAGES = 2
_FILE_BYTES = _ENTRY_BYTES + _PAGES * _PAGE_BYTES
_UNKNOWN = 255
"""In place of the page's number: too many jobs have begun to be listed."""
_NONE = bytes(_ENTRY_BYTES)


class BegunJobs:
    """The list: `create` in the parent, `add` in the process, `among` afterwards."""

    live: Callable[[], Iterable[Job]] = staticmethod(lambda: ())
    """Returns the jobs that have begun and are not settled."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        reserve(fd, _FILE_BYTES)
        self._file = mmap.mmap(fd, _FILE_BYTES)
        self._page = 0
        self._next, self._end = _bounds(0)

    @classmethod
    def create(cls) -> BegunJobs:
        """Make an empty list, whose `fd` is to be passed on to the process."""
        return cls(shared_file())

    def add(self, job: Job) -> None:
        """Add a job that begins."""
        if self._next == self._end:
            self._turn_page()
        place = self._next
        self._next = place + _ENTRY_BYTES
        self._file[place : self._next] = _entry(job)

    def among(self, held: Iterable[Job]) -> set[UUID]:
        """Return which of these jobs have begun, by the claim that holds them; all if unknown."""
        begun = self._entries()
        return {job.id for job in held if begun is None or _entry(job) in begun}

    def _entries(self) -> frozenset[bytes] | None:
        page = self._file[0]
        if page == _UNKNOWN:
            return None
        start, end = _bounds(page)
        data = self._file[start:end]
        places = range(0, len(data), _ENTRY_BYTES)
        return frozenset(data[place : place + _ENTRY_BYTES] for place in places) - {_NONE}

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        os.close(self.fd)
        self.fd = -1

    def _turn_page(self) -> None:
        entries = b"".join([_entry(job) for job in self.live()])
        is_unknown = len(entries) > _PAGE_BYTES // 2
        if is_unknown:
            entries = b""
        self._page = (self._page + 1) % _PAGES
        start, self._end = _bounds(self._page)
        self._file[start : self._end] = entries.ljust(_PAGE_BYTES, b"\0")
        self._next = start + len(entries)
        self._file[0] = _UNKNOWN if is_unknown else self._page


def _entry(job: Job) -> bytes:
    """Return a number of a claim: the id of its job, altered by the claim's random token."""
    return (job.id.int ^ (job.token or 0)).to_bytes(_ENTRY_BYTES, "big")


def _bounds(page: int) -> tuple[int, int]:
    start = _ENTRY_BYTES + page * _PAGE_BYTES
    return start, start + _PAGE_BYTES
