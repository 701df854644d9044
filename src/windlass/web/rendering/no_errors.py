"""Owns what a page says that lists no errors: no more than was looked at."""

from __future__ import annotations

from datetime import datetime

from windlass.web.access.roles import Access
from windlass.web.rendering.formats import line

_MAX_NAME = 60


def no_errors(
    access: Access,
    searched_to: datetime | None,
    *,
    kind: str = "",
    queue: str = "",
    is_new: bool = False,
) -> tuple[str, str]:
    """Return a title and a hint: of all errors, of a kind, or of the kinds of a queue.

    People limited to queues see dead jobs alone, since failed runs are recorded for all queues
    together. `searched_to`: jobs that died then or before were not looked at.
    """
    which = f" of kind {line(kind, _MAX_NAME)}" if kind else ""
    if queue:
        which = f" of the kinds of queue {line(queue, _MAX_NAME)}"
    looked_at = "" if searched_to is None else "Older dead jobs were not looked at."
    if access.queues is not None:
        what = "No new errors" if is_new else "No dead job"
        return f"{what}{'' if queue else which} in your queues", looked_at
    if is_new:
        return f"No new errors{which}", looked_at
    who = "None of their runs" if queue else "None of its runs" if kind else "Nothing"
    dead = "no job of them" if queue else "no job of it" if kind else "no job"
    return f"No errors{which}", f"{who} failed in the last hour, and {dead} is dead. {looked_at}"
