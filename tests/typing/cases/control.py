"""Control, schedules and handles: a blocking twin has the exact signature of what is awaited."""

from typing import reveal_type
from uuid import UUID

from windlass import State, Windlass

app = Windlass("memory://")
JOB = UUID(int=1)


@app.job
def add(a: int, b: int = 1) -> int:
    return a + b


async def right() -> None:
    reveal_type(app.control.pause("mail"))  # R: bool
    reveal_type(await app.control.apause("mail"))  # R: bool
    reveal_type(app.jobs.find(kind="add", states=[State.DEAD]))  # R: Page
    reveal_type(await app.jobs.afind(kind="add", limit=5))  # R: Page
    reveal_type(app.control.redrive([JOB], reason="again"))  # R: list[Job]
    reveal_type(app.control.why(JOB).reasons[0].cause)  # R: Cause
    reveal_type(app.control.set_limit("gpu", rate="1/s"))  # R: None
    reveal_type((await app.control.abreakers())[0].name)  # R: str
    reveal_type(app.schedules.put("n", add.draft(1), every="1h"))  # R: ScheduleStatus
    reveal_type(await app.schedules.alist())  # R: list[ScheduleStatus]
    reveal_type(add.enqueue(1).result(timeout="5s"))  # R: int
    reveal_type(add.enqueue(1).state())  # R: State
    reveal_type(app.stats(queue="mail"))  # R: Stats
    reveal_type(app.run_worker(burst=True))  # R: None


async def wrong() -> None:
    app.control.pause("mail", kinds="x")  # E: call-arg
    app.jobs.find(kin="add")  # E: call-arg
    app.control.why("0197")  # E: arg-type
    await app.control.pause("mail")  # E: misc
    app.control.set_limit("gpu", rate=5)  # E: arg-type
    app.schedules.put("n", add.draft(1), evry="1h")  # E: call-arg
    add.enqueue(1).result(timeout=[])  # E: arg-type
    text: str = add.enqueue(1).result()  # E: assignment
    print(text)
