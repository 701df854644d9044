"""Classes with `execute`: `enqueue` takes what their constructor takes.

They are registered by a call: mypy takes no notice of what a decorator makes of a class.
"""

from dataclasses import dataclass
from typing import reveal_type

import msgspec

from windlass import Cancel, Context, Snooze, SyncContext, Windlass

app = Windlass("memory://")


@dataclass
class Email:
    to: str
    copies: int = 1

    async def execute(self, ctx: Context) -> str:
        return self.to


class Report(msgspec.Struct):
    day: str

    def execute(self, ctx: SyncContext) -> int:
        return 1


@dataclass
class Charge:
    cents: int

    async def execute(self, ctx: Context) -> str | Snooze | Cancel:
        return Snooze("1m")


class Refund(msgspec.Struct):
    cents: int

    def execute(self, ctx: SyncContext) -> int | Cancel:
        return 1


charge = app.job(Charge)
refund = app.job(Refund)
email = app.job(Email)
report = app.job(queue="reports")(Report)


async def right() -> None:
    reveal_type(charge.enqueue(5).result())  # R: str
    reveal_type(refund.enqueue(cents=5).result())  # R: int
    reveal_type(await email.aenqueue("anna", copies=2))  # R: Handle[str]
    reveal_type(report.enqueue(day="monday"))  # R: Handle[int]
    reveal_type(await (await email.aenqueue("anna")).aresult())  # R: str


async def wrong() -> None:
    await email.aenqueue(7)  # E: arg-type
    await email.aenqueue()  # E: call-arg
    await email.aenqueue("anna", copy=2)  # E: call-arg
    report.enqueue(1)  # E: arg-type
