"""Owns how workers are replaced one after the other, each only when its successor serves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from windlass.observe.logs import get_logger
from windlass.runtime.waits import first
from windlass.runtime.ward import Ward

log = get_logger("windlass.supervisor")
_STARTS_WITHIN = 60.0


async def replace_all(
    wards: Sequence[Ward], *, start: Callable[[], Ward], is_stopping: Callable[[], bool]
) -> None:
    """Replace the wards; if a successor does not start, those that are left go on."""
    log.info("supervisor.rolling", processes=len(wards))
    for old in wards:
        if old.leaving or old.code is not None:
            continue
        try:
            new = start()
        except OSError as error:
            log.error("supervisor.roll_failed", why=str(error))  # noqa: TRY400
            return
        await first(new.ready.wait(), new.ended.wait(), patience=_STARTS_WITHIN)
        if is_stopping():
            return
        if not new.ready.is_set():
            new.leave("it did not start")
            new.kill()
            log.error(
                "supervisor.roll_failed",
                pid=new.pid,
                why="the new worker did not start; the old ones go on",
            )
            return
        old.drain("replaced")
