"""Owns the board: a file without a name to which a worker process writes its figures.

Its supervisor can read them at any time, also while the process is stuck or after it has died. Two
pages are written in turns, and the header names the complete one: no reader sees half a page.
"""

from __future__ import annotations

import os
import struct
import zlib

from windlass.process.exits.shared_files import shared_file

_HEADER = struct.Struct("<QQQ")
"""The number of the page, its size, and its checksum."""
_PAGE_BYTES = 32 * 1024 * 1024
"""Bytes for a thousand pairs of the longest names, with all their figures; a page that is not
written takes no memory.
"""
_MAX_READS = 3


class StatsBoard:
    """A place for figures: `create` in the parent, which passes on the `fd`."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._written = 0

    @classmethod
    def create(cls) -> StatsBoard:
        """Make an empty board."""
        return cls(shared_file())

    def write(self, data: bytes) -> bool:
        """Replace the contents; return False if the data does not fit on a page."""
        if len(data) > _PAGE_BYTES:
            return False
        number = self._written + 1
        os.pwrite(self.fd, data, _place(number))
        os.pwrite(self.fd, _HEADER.pack(number, len(data), zlib.crc32(data)), 0)
        self._written = number
        return True

    def read(self) -> bytes | None:
        """Return the latest contents; None if there are none, or they change all the time."""
        for _ in range(_MAX_READS if self.fd >= 0 else 0):
            try:
                head = os.pread(self.fd, _HEADER.size, 0)
                if len(head) < _HEADER.size:
                    return None
                number, size, checksum = _HEADER.unpack(head)
                data = os.pread(self.fd, min(size, _PAGE_BYTES), _place(number))
            except OSError:
                return None  # Closed meanwhile, by another thread.
            if not number:
                return None  # The first page is written, and its header is not.
            if zlib.crc32(data) == checksum:
                return data
        return None

    def close(self) -> None:
        """Close the file."""
        os.close(self.fd)
        self.fd = -1


def _place(number: int) -> int:
    return _HEADER.size + number % 2 * _PAGE_BYTES
