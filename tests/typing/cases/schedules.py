"""Schedules: a handler below their decorators stays what it is, and their options are checked."""

from typing import reveal_type

from windlass import Context, Snooze, SyncContext, Windlass

app = Windlass("memory://")


@app.every("30s", jitter="5s", queue="chores", timeout=None)
async def sweep(ctx: Context, depth: int = 3) -> int:
    return depth


@app.cron("0 7 * * *", tz="Europe/Berlin", catch_up="all", overlap="queue")
@app.job(queue="mail")
def send(to: str = "all") -> str:
    return to


@app.every("1m")
async def poll() -> bool | Snooze:
    return Snooze("1s")


class Tidy:
    def execute(self, ctx: SyncContext) -> str:
        return str(ctx.scheduled_for)


tidy = app.every("1h", isolate=True)(Tidy)


async def right() -> None:
    reveal_type(poll.enqueue().result())  # R: bool
    reveal_type(sweep.enqueue(4))  # R: Handle[int]
    reveal_type(send.enqueue("a").result())  # R: str
    reveal_type(tidy.enqueue())  # R: Handle[str]
    reveal_type(app.schedules.list("a"))  # R: list[ScheduleStatus]
    put = app.schedules.put("a", send.draft("b"), every="1m")
    reveal_type(put.next)  # R: datetime.datetime | None
    reveal_type(await app.schedules.arun("a"))  # R: Handle[Any]
    app.schedules.put("a", "send", {"to": "b"}, cron="0 7 * * *", tz="UTC", overlap="allow")


async def wrong() -> None:
    app.every("1m", overlap="maybe")  # E: arg-type
    app.every("1m", tz="UTC")  # E: call-arg
    app.every()  # E: call-arg
    app.cron("0 7 * * *", catch_up=True)  # E: arg-type
    app.schedules.put("a", send.draft("b"), often="1m")  # E: call-arg
    sweep.enqueue("deep")  # E: arg-type
