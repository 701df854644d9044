"""Owns the rolling restart: workers are replaced one by one, each once its successor serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.observability.logs import get_logger
from windlass.process.waits import first

if TYPE_CHECKING:
    from windlass.supervisor.supervisor import Supervisor

log = get_logger("windlass.supervisor")
_START_SECONDS = 60.0


async def replace_all(supervisor: Supervisor) -> None:
    """Replace the workers; if a successor does not start, the remaining ones stay."""
    processes = list(supervisor.workers.values())
    log.info("supervisor.rolling", processes=len(processes))
    for old in processes:
        if old.leaving or old.code is not None:
            continue
        try:
            new = supervisor.start_one()
        except OSError as error:
            log.error("supervisor.roll_failed", why=str(error))  # noqa: TRY400
            return
        await first(new.ready.wait(), new.ended.wait(), patience=_START_SECONDS)
        if supervisor.is_stopping:
            return
        if not new.ready.is_set():
            new.leave("it did not start")
            new.kill()
            log.error(
                "supervisor.roll_failed",
                pid=new.pid,
                why="the new worker did not start; the old workers keep running",
            )
            return
        old.drain("replaced")
