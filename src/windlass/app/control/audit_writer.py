"""Owns how the audit log is written: who acts by `app.control`, and the entry of each action."""

from __future__ import annotations

import copy
import getpass
import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Self, TypeVar
from uuid import UUID

from windlass.core.audit import Actor, Note, Via, check_via
from windlass.core.changes import Applied, Changes, Decide
from windlass.core.records import Json
from windlass.core.values.names import NAME_LIMIT, check_name
from windlass.core.values.text import inert
from windlass.observability.logs import get_logger
from windlass.store import Store

if TYPE_CHECKING:
    from windlass.app.app import Windlass

log = get_logger("windlass.audit")
VARIABLE = "WINDLASS_ACTOR"
ActingT = TypeVar("ActingT", bound="Acting")
T = TypeVar("T")


class Acting:
    """Something by which an operator acts. Each action leaves an entry in the audit log."""

    _app: Windlass
    _actor: Actor | None = None
    _audited = True

    def acting_as(self, by: str, *, via: Via = "python", reason: str = "") -> Self:
        """Return the same for an operator, whose name is recorded with each action.

        `reason` is recorded with actions for which none is given.

        Raises:
            ValueError: the name is empty or too long, or there is no such `via`.
        """
        bound = copy.copy(self)
        bound._actor = Actor(check_name("operator", by), check_via(via), reason)
        bound._audited = True
        return bound

    @property
    def unaudited(self) -> Self:
        """The same without entries in the audit log, for what a program does on its own."""
        bound = copy.copy(self)
        bound._audited = False
        return bound

    @property
    def actor(self) -> Actor:
        """The operator: the one of `acting_as`, else WINDLASS_ACTOR, else user@host."""
        return self._actor or self._default_actor()

    def _default_actor(self) -> Actor:
        return Actor(inert(os.environ.get(VARIABLE, "")).strip()[:NAME_LIMIT] or _user_at_host())

    def _note(
        self,
        action: str,
        subject: str,
        *,
        detail: str = "",
        reason: str | None = None,
        jobs: Sequence[UUID] = (),
    ) -> Note:
        return Note(
            actor=self.actor if self._audited else None,
            action=action,
            subject=subject,
            suffix=secrets.token_hex(6),
            detail=detail,
            reason=reason or "",
            jobs=jobs,
        )

    async def _act(
        self, note: Note, names: Sequence[str], decide: Decide[T], store: Store | None = None
    ) -> Applied[T]:
        """Apply an operator's change together with its entry, and log it."""
        is_new = not note.names
        applied = await self._apply(note, names, decide, store or self._app.store)
        if is_new:
            log_action(note)
        return applied

    async def _apply(
        self, note: Note, names: Sequence[str], decide: Decide[T], store: Store
    ) -> Applied[T]:
        """Apply one of the changes of an action, together with its entry."""
        space = store.location
        written = [note.names[space]] if space in note.names else []

        def noted(known: Mapping[str, Json], now: datetime) -> Changes[tuple[T, str | None]]:
            return note.on(decide(known, now), known, now, space)

        applied = await store.apply(sorted({*names, *written}), noted)
        answer, name = applied.answer
        moved = sum(job is not None for job in applied.moved)
        if name is not None and (moved or not applied.moved):
            note.names[space] = name
        note.count += moved
        return Applied(answer=answer, moved=applied.moved)


def log_action(note: Note) -> None:
    """Log an action that has an entry."""
    if note.actor is None or not note.names:
        return
    log.info(
        "operator.acted",
        by=note.actor.by,
        via=note.actor.via,
        action=note.action,
        subject=note.subject,
        detail=note.detail,
        count=note.count,
        reason=note.reason or note.actor.reason,
    )


@cache
def _user_at_host() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # A container may run as a user that has no name.
        user = f"uid{os.getuid()}"
    return f"{user}@{socket.gethostname()}"
