"""Owns chaos on SQLite: a file in a temporary directory, or one that a user names."""

from __future__ import annotations

import asyncio
import glob
from pathlib import Path
from urllib.parse import unquote, urlsplit

from windlass.chaos.grounds.disk import SmallDisk
from windlass.chaos.grounds.ground import Ground, refuse_full
from windlass.chaos.plan import NETWORK_FAULTS, FaultKind


class SqliteGround(Ground):
    """A database file; there is no server, and no network."""

    name = "sqlite"

    def __init__(self, directory: Path, url: str = "", *, jobs: int = 0) -> None:
        super().__init__()
        self._given = url
        self._own_file: Path | None = None
        self._disk = SmallDisk(directory / "disk", jobs)
        self._without("SQLite has no network", *NETWORK_FAULTS)
        self._without(
            "SQLite has no server",
            FaultKind.TERMINATE_BACKENDS,
            FaultKind.RESTART_SERVER,
            FaultKind.FAIL_OVER,
        )
        self._without("SQLite has the clock of this machine", FaultKind.STEP_CLOCK)

    async def prepare(self) -> None:
        if self._given:
            self._own_file = await asyncio.to_thread(self._checked_file)
            self._without("it is your disk", FaultKind.FILL_DISK)
            # Absolute: workers run in a directory of their own.
            self.url = f"sqlite:///{self._own_file}"
            return
        if not self._disk.mount():
            self._without("this user may not mount a tmpfs", FaultKind.FILL_DISK)
        self.url = f"sqlite:///{self._disk.directory / 'chaos.db'}"

    def _checked_file(self) -> Path:
        path = Path(unquote(urlsplit(self._given).path).removeprefix("/")).absolute()
        if path.exists():
            raise refuse_full(f"{path} exists", "name a file that does not exist yet")
        return path

    async def close(self) -> None:
        self._disk.unmount()
        if self._own_file is not None:
            await asyncio.to_thread(_remove, self._own_file)

    async def fill_disk(self, seconds: float) -> None:
        try:
            await asyncio.to_thread(self._disk.fill)
            await asyncio.sleep(seconds)
        finally:
            self._disk.empty()


def _remove(file: Path) -> None:
    for each in file.parent.glob(f"{glob.escape(file.name)}*"):
        if each.name.removeprefix(file.name) in ("", "-wal", "-shm", "-turn"):
            each.unlink(missing_ok=True)
