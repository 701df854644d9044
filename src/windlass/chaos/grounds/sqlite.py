"""Owns chaos on SQLite: a file in a temporary directory, or one that a user names."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import unquote, urlsplit

from windlass.chaos.grounds.disk import SmallDisk
from windlass.chaos.grounds.ground import Ground, refuse_full
from windlass.chaos.plan import NETWORK_FAULTS, FaultKind


class SqliteGround(Ground):
    """A database file; there is no server, and no network."""

    name = "sqlite"

    def __init__(self, directory: Path, url: str = "") -> None:
        super().__init__()
        self._given = url
        self._disk = SmallDisk(directory / "disk")
        self._without("SQLite has no network", *NETWORK_FAULTS)
        self._without(
            "SQLite has no server", FaultKind.TERMINATE_BACKENDS, FaultKind.RESTART_SERVER
        )

    async def prepare(self) -> None:
        if self._given:
            await asyncio.to_thread(self._check_new)
            self._without("it is your disk", FaultKind.FILL_DISK)
            self.url = self._given
            return
        if not self._disk.mount():
            self._without("this user may not mount a tmpfs", FaultKind.FILL_DISK)
        self.url = f"sqlite:///{self._disk.directory / 'chaos.db'}"

    def _check_new(self) -> None:
        path = Path(unquote(urlsplit(self._given).path).removeprefix("/"))
        if path.exists():
            raise refuse_full(f"{path} exists", "name a file that does not exist yet")

    async def close(self) -> None:
        self._disk.unmount()

    async def fill_disk(self, seconds: float) -> None:
        try:
            await asyncio.to_thread(self._disk.fill)
            await asyncio.sleep(seconds)
        finally:
            self._disk.empty()
