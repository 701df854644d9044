"""Owns the board: a file without a name on which a worker process leaves its figures.

Its supervisor reads them whenever somebody asks, also while the process is stuck or after it has
died. Two pages are written by turns, and the head says which is whole: no reader sees half a page.
"""

from __future__ import annotations

import os
import struct
import zlib

from windlass.runtime.blackbox import shared_file

_HEAD = struct.Struct("<QQQ")
"""The number of the page, its size, and its checksum."""
_PAGE = 32 * 1024 * 1024
"""As much as a thousand pairs of the longest names take, with all that is told of each; what is not
written takes no memory.
"""
_TRIES = 3


class Board:
    """A place for figures. `create` in the parent, which passes on the `fd`."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._written = 0

    @classmethod
    def create(cls) -> Board:
        """Make a board with nothing on it."""
        return cls(shared_file())

    def write(self, data: bytes) -> bool:
        """Put this in place of what was there before; False if it is more than a page."""
        if len(data) > _PAGE:
            return False
        number = self._written + 1
        os.pwrite(self.fd, data, _place(number))
        os.pwrite(self.fd, _HEAD.pack(number, len(data), zlib.crc32(data)), 0)
        self._written = number
        return True

    def read(self) -> bytes | None:
        """Return what was written last; None if there is nothing, or it changes all the time."""
        for _ in range(_TRIES if self.fd >= 0 else 0):
            try:
                head = os.pread(self.fd, _HEAD.size, 0)
                if len(head) < _HEAD.size:
                    return None
                number, size, checksum = _HEAD.unpack(head)
                data = os.pread(self.fd, min(size, _PAGE), _place(number))
            except OSError:
                return None  # Closed meanwhile, by another thread.
            if not number:
                return None  # The first page is there, and its head is not.
            if zlib.crc32(data) == checksum:
                return data
        return None

    def close(self) -> None:
        """Let go of the file."""
        os.close(self.fd)
        self.fd = -1


def _place(number: int) -> int:
    return _HEAD.size + number % 2 * _PAGE
