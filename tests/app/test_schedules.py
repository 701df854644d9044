"""`@app.every`, `@app.cron` and `app.schedules`, as a user types them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.support.app_on_store import Bed, Clock, on_embedded_stores
from windlass import (
    CalledFromEventLoop,
    ConfigError,
    Context,
    Kind,
    PayloadInvalid,
    Secret,
    SyncContext,
    UnknownKind,
    UnknownSchedule,
    Windlass,
)

pytestmark = pytest.mark.stores("postgres")

MINUTE = timedelta(minutes=1)


@pytest.fixture
def app() -> Windlass:
    return Windlass("memory://")


# -- decorators ------------------------------------------------------------------------------------


def test_a_bare_function_becomes_a_job_and_a_schedule_of_its_name(app: Windlass) -> None:
    @app.every("30s", queue="chores", timeout="10s", max_retries=2, jitter="5s")
    async def sweep(ctx: Context, depth: int = 3) -> None: ...

    wanted = app.schedules.declared["sweep"]
    assert (wanted.job.kind, wanted.job.queue, wanted.job.payload) == ("sweep", "chores", "{}")
    assert (str(wanted.cadence), wanted.jitter) == ("every 30s", timedelta(seconds=5))
    assert (wanted.catch_up, wanted.catch_up_limit, wanted.overlap) == ("latest", 100, "skip")
    assert wanted.declared
    assert app.registry["sweep"].timeout == timedelta(seconds=10)
    assert sweep.draft(7).job.kind == "sweep"


def test_a_handler_may_have_several_schedule_decorators(app: Windlass) -> None:
    @app.cron("0 7 * * MON-FRI", tz="Europe/Berlin", name="mornings", catch_up="all")
    @app.every("1h", overlap="allow")
    @app.job(name="mail.send", queue="mail", unique="to")
    def send(to: str = "all") -> None: ...

    mornings, hourly = app.schedules.declared["mornings"], app.schedules.declared["mail.send"]
    assert mornings.job == hourly.job
    assert (mornings.job.kind, mornings.job.queue) == ("mail.send", "mail")
    assert mornings.job.unique is not None
    assert (mornings.cadence.cron, mornings.cadence.tz) == ("0 7 * * MON-FRI", "Europe/Berlin")
    assert (mornings.catch_up, mornings.overlap, hourly.overlap) == ("all", "queue", "allow")
    send("me")


def test_a_class_and_a_named_function_can_tick(app: Windlass) -> None:
    @app.every("1m", name="chores.sweep", aliases=["sweep"])
    class Sweep:
        def execute(self, ctx: SyncContext) -> None: ...

    assert app.schedules.declared["chores.sweep"].job.kind == "chores.sweep"
    assert "sweep" in app.registry
    assert isinstance(Sweep(), object)


def test_handlers_that_cannot_be_scheduled_are_refused_with_the_remedy(app: Windlass) -> None:
    with pytest.raises(ConfigError, match=r"app\.schedules\.put\(name, handler\.draft"):

        @app.every("1m")
        async def report(tenant: str) -> None: ...

    @app.every("1m")
    async def sweep() -> None: ...

    with pytest.raises(ConfigError, match=r"two schedules are named 'sweep'.*name="):
        app.cron("0 7 * * *")(sweep)
    with pytest.raises(ConfigError, match="move queue, timeout there"):
        app.cron("0 7 * * *", name="other", queue="a", timeout="1s")(sweep)
    with pytest.raises(ConfigError, match="cron must have five fields"):
        app.cron("at seven")
    with pytest.raises(ConfigError, match="not a known time zone"):
        app.cron("0 7 * * *", tz="Mars/Olympus")
    with pytest.raises(ConfigError, match="must be an interval"):
        app.every("often")
    with pytest.raises(ConfigError, match="skip, latest, all"):
        app.every("1m", name="x", catch_up="most")(sweep)  # type: ignore[arg-type]


# -- put -------------------------------------------------------------------------------------------


@on_embedded_stores
def test_a_schedule_is_put_looked_at_and_removed_from_blocking_code(bed: Bed) -> None:
    clock = Clock()
    app = bed.app(store=bed.store(clock=clock))

    @app.job(queue="mail")
    def report(tenant: str) -> str:
        return tenant

    noon = clock.now
    put = app.schedules.put("acme", report.draft("acme"), every="10m", jitter="1m")
    assert (put.next, put.record.alarm != put.next) == (noon + 10 * MINUTE, True)
    clock.advance(minutes=1)
    assert app.schedules.put("acme", "report", {"tenant": "acme"}, every="10m").next == put.next
    assert app.schedules.upcoming("acme", 2) == [noon + 10 * MINUTE, noon + 20 * MINUTE]
    drafts = {f"t{number:03}": report.draft(str(number)) for number in range(150)}
    assert len(app.schedules.put_many(drafts, cron="0 7 * * *", tz="Asia/Kathmandu")) == 150
    assert [each.name for each in app.schedules.list("t14")] == [f"t14{n}" for n in range(10)]
    assert len(app.schedules.list()) == 151

    assert app.schedules.pause("acme").state == "paused"
    assert app.schedules.get("acme").next is None
    clock.advance(minutes=30)
    assert app.schedules.upcoming("acme", 1) == [noon + 40 * MINUTE]
    assert app.schedules.resume("acme").next == noon + 40 * MINUTE
    handle = app.schedules.run("acme")
    assert handle.info().headers["windlass-tick"] == "2030-01-01T12:31:00+00:00"
    assert app.schedules.get("acme").record.last_job == handle.id
    assert app.schedules.remove("acme")
    assert not app.schedules.remove("acme")
    with pytest.raises(UnknownSchedule):
        app.schedules.get("acme")


@on_embedded_stores
def test_a_kind_can_be_scheduled_where_its_handler_is_not(bed: Bed) -> None:
    app, kind = bed.app(), Kind("report", dict[str, int])
    typed = app.schedules.put("typed", app.producer(kind).draft({"a": 1}), every="1m")
    named = app.schedules.put("named", "report", {"a": 1}, every="1m")
    assert typed.record.schedule == named.record.schedule
    assert not app.schedules.get("named").served


@on_embedded_stores
def test_a_schedule_is_checked_before_it_is_put(bed: Bed) -> None:
    app = bed.app(encryption_keys=["k1:" + "A" * 43 + "="])

    @app.job
    def report(tenant: str) -> None: ...

    @app.job
    def pay(card: Secret[str]) -> None: ...

    @app.every("1m")
    def sweep() -> None: ...

    refused: list[tuple[type[Exception], str, str, Any, dict[str, Any]]] = [
        (UnknownKind, "reprot", "s", "reprot", {"every": "1m"}),
        (PayloadInvalid, "tenant", "s", "report", {"every": "1m"}),
        (ConfigError, "five fields", "s", report.draft("a"), {"cron": "daily"}),
        (
            ConfigError,
            "not a known time zone",
            "s",
            report.draft("a"),
            {"cron": "* * * * *", "tz": "X"},
        ),
        (ConfigError, "either every= or cron=", "s", report.draft("a"), {}),
        (ConfigError, "declared in an app's code", "sweep", report.draft("a"), {"every": "1m"}),
        (ConfigError, "write handler.draft(...)", "s", report, {"every": "1m"}),
        (ConfigError, "look it up", "s", pay.draft(Secret("4111")), {"every": "1m"}),
        (ValueError, "at most 200", "s" * 201, report.draft("a"), {"every": "1m"}),
        (ValueError, "must have a name", "", report.draft("a"), {"every": "1m"}),
    ]
    for error, words, name, job, times in refused:
        with pytest.raises(error) as raised:
            app.schedules.put(name, job, **times)
        assert words in str(raised.value)
    with pytest.raises(ConfigError, match="leave out payload="):
        app.schedules.put("s", report.draft("a"), {"tenant": "b"}, every="1m")
    assert app.schedules.list() == []


@on_embedded_stores
def test_a_schedule_declared_in_code_cannot_be_replaced_by_put(bed: Bed) -> None:
    app = bed.app()
    web = bed.app(store=app.store)

    @app.every("1m")
    def sweep() -> None: ...

    asyncio.run(app.arun_worker(burst=True))
    with pytest.raises(ConfigError, match="declared in an app's code"):
        web.schedules.put("sweep", "sweep", every="1h")
    assert str(web.schedules.get("sweep").record.schedule.cadence) == "every 1m"


@on_embedded_stores
def test_a_run_by_hand_of_what_is_unique_returns_the_job_that_there_is(bed: Bed) -> None:
    app = bed.app()

    @app.job(unique="tenant")
    def report(tenant: str) -> None: ...

    app.schedules.put("acme", report.draft("acme"), every="1m")
    first = app.schedules.run("acme")
    again = app.schedules.run("acme")
    assert (again.id, again.is_duplicate) == (first.id, True)


def test_blocking_calls_are_refused_in_an_event_loop(app: Windlass) -> None:
    async def main() -> None:
        calls: dict[str, Callable[[], object]] = {
            "put": lambda: app.schedules.put("s", "report", every="1m"),
            "put_many": lambda: app.schedules.put_many({}, every="1m"),
            "list": lambda: app.schedules.list(),
            "get": lambda: app.schedules.get("s"),
            "pause": lambda: app.schedules.pause("s"),
            "resume": lambda: app.schedules.resume("s"),
            "run": lambda: app.schedules.run("s"),
            "remove": lambda: app.schedules.remove("s"),
            "upcoming": lambda: app.schedules.upcoming("s"),
        }
        for name, call in calls.items():
            with pytest.raises(CalledFromEventLoop, match=f"await app.schedules.a{name}"):
                call()

    asyncio.run(main())
