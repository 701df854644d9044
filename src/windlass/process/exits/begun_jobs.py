"""Owns the list of the jobs that have begun in a process, readable after it has died.

A worker claims more jobs than have begun in it. When its process dies, those that had begun may
have killed it, and the others hardly: its supervisor reads here which had. The list is a file
without a name, whose descriptor both processes hold. Ids are only added; when a page of them is
full, those of the jobs that have not been settled are copied to the other page.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterable

from windlass.process.shared_files import reserve, shared_file

_ID_BYTES = 16
_PAGE_BYTES = 8_192 * _ID_BYTES
_PAGES = 2
_FILE_BYTES = _ID_BYTES + _PAGES * _PAGE_BYTES
_UNKNOWN = 255
"""In place of the page's number: too many jobs have begun to be listed."""
_NONE = bytes(_ID_BYTES)


class BegunJobs:
    """The list: `create` in the parent, `add` in the process, `read` afterwards."""

    live: Callable[[], Iterable[int]] = staticmethod(lambda: ())
    """Returns the ids of the jobs that have begun and are not settled, as integers."""

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

    def add(self, job: int) -> None:
        """Add a job that begins, by its id as an integer."""
        if self._next == self._end:
            self._turn_page()
        place = self._next
        self._next = place + _ID_BYTES
        self._file[place : self._next] = job.to_bytes(_ID_BYTES, "big")

    def read(self) -> frozenset[int] | None:
        """Return the ids of all jobs that have begun and may be unsettled; None if unknown."""
        page = self._file[0]
        if page == _UNKNOWN:
            return None
        start, end = _bounds(page)
        data = self._file[start:end]
        ids = (data[place : place + _ID_BYTES] for place in range(0, len(data), _ID_BYTES))
        return frozenset(int.from_bytes(each, "big") for each in ids if each != _NONE)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        os.close(self.fd)
        self.fd = -1

    def _turn_page(self) -> None:
        ids = b"".join([job.to_bytes(_ID_BYTES, "big") for job in self.live()])
        is_unknown = len(ids) > _PAGE_BYTES // 2
        if is_unknown:
            ids = b""
        self._page = (self._page + 1) % _PAGES
        start, self._end = _bounds(self._page)
        self._file[start : self._end] = ids.ljust(_PAGE_BYTES, b"\0")
        self._next = start + len(ids)
        self._file[0] = _UNKNOWN if is_unknown else self._page


def _bounds(page: int) -> tuple[int, int]:
    start = _ID_BYTES + page * _PAGE_BYTES
    return start, start + _PAGE_BYTES
