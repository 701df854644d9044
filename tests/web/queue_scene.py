"""Gives tests a store with jobs of queues that a person may see, and of one that nobody may."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from windlass import Breaker, ErrorClass, PermanentError, Windlass

MARK = "zzforbidden"
OWN = ("mail", "reports")
_Unreachable = type(f"{MARK}Error", (RuntimeError,), {})
"""The history of a breaker names the type of the error."""


def queue_app() -> Windlass:
    app = Windlass("memory://", max_retries=0)
    app.limit(f"{MARK}-limit", concurrency=2)

    @app.job(queue="mail")
    async def send_email(to: str) -> str:
        return f"sent to {to}"

    @app.job(queue="mail")
    async def fail(number: int) -> None:
        raise PermanentError(f"number {number} is wrong")

    @app.job(queue=f"{MARK}-queue", name=f"{MARK}_kind", limit=f"{MARK}-limit")
    async def forbidden(text: str) -> str:
        if text.endswith("bad"):
            raise PermanentError(f"{MARK} error")
        return text

    @app.job(queue=f"{MARK}-queue", name="shared")
    async def shared(text: str) -> None:
        raise PermanentError(f"{text} shared error")

    @app.job(
        queue="mail", breaker=Breaker("both", failures=1), errors={RuntimeError: ErrorClass.SYSTEM}
    )
    async def charge(text: str) -> None:
        raise _Unreachable(f"{text} cannot be reached")

    @app.every("1h", name=f"{MARK}-hourly", queue=f"{MARK}-queue")
    async def sweep() -> None: ...

    return app


@dataclass
class Scene:
    app: Windlass
    own: dict[str, UUID] = field(default_factory=dict)
    other: dict[str, UUID] = field(default_factory=dict)
    flow: UUID | None = None
    bulk: UUID | None = None
    own_bulk: UUID | None = None


async def seeded_queues() -> Scene:
    app = queue_app()
    mail, bad = app.producer("send_email"), app.producer("fail")
    forbidden, shared = app.producer(f"{MARK}_kind"), app.producer("shared")
    done, dead, hidden, hidden_dead, *_ = await app.aenqueue_many(
        [
            mail.draft({"to": "a@example.org"}),
            bad.draft({"number": 7}),
            forbidden.draft({"text": MARK}),
            forbidden.draft({"text": f"{MARK} bad"}),
            shared.using(queue="mail").draft({"text": "own"}),
            shared.draft({"text": MARK}),
            app.producer("charge").using(queue=f"{MARK}-queue").draft({"text": MARK}),
        ]
    )
    flow = app.flow(f"{MARK}-flow", queue="mail")
    first = flow.add(mail.draft({"to": "b@example.org"}))
    flow.add(forbidden.draft({"text": MARK}), name=f"{MARK}-part", after=[first])
    flowing = await flow.aenqueue()
    await app.arun_worker(burst=True, queues=["mail", f"{MARK}-queue"])
    waiting, held, hidden_waiting = await app.aenqueue_many(
        [
            mail.draft({"to": "w@example.org"}),
            app.producer("charge").draft({"text": "own"}),
            forbidden.draft({"text": MARK}),
        ]
    )
    assert MARK in next(each.why for each in await app.control.abreakers())
    operator = app.control.acting_as("grace", reason=f"{MARK} reason")
    await operator.apause(f"{MARK}-queue")
    await operator.apause(kind=f"{MARK}_kind")
    await operator.apause(key=f"{MARK}-key")
    await operator.acancel(hidden_waiting.id, reason=f"{MARK} cancelled")
    await operator.aset_limit(f"{MARK}-limit", concurrency=3)
    started = await operator.astart_bulk("cancel", search=f"queue:{MARK}-queue state:pending")
    own = await app.control.astart_bulk("cancel", search="queue:mail state:scheduled", reason="x")
    return Scene(
        app=app,
        own={"completed": done.id, "dead": dead.id, "pending": waiting.id, "held": held.id},
        other={"completed": hidden.id, "dead": hidden_dead.id, "cancelled": hidden_waiting.id},
        flow=flowing.id,
        bulk=started.id,
        own_bulk=own.id,
    )
