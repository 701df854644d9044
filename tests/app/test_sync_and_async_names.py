"""One rule for sync and async: a plain name blocks, its twin that begins with `a` is awaited."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import windlass
import windlass.testing
from tests.support.app_on_store import serving_in_a_thread
from windlass import Context, State, SyncContext, Windlass
from windlass.app.control.control import Control
from windlass.app.jobs.jobs import Jobs
from windlass.app.producer import Producer
from windlass.app.schedules import Schedules
from windlass.worker import Worker

MODULES = (windlass, windlass.testing)
FACES = {
    *(getattr(module, name) for module in MODULES for name in module.__all__),
    *(Control, Jobs, Producer, Schedules, Worker),
}
CLASSES = sorted((face for face in FACES if inspect.isclass(face)), key=lambda face: face.__name__)
OTHERWISE = {
    "Context": "an `async def` handler awaits under plain names; a `def` handler has a SyncContext",
    "Callbacks.ended": "middleware: only the worker calls it, in its event loop",
    "MeasureRuns.ended": "middleware: only the worker calls it, in its event loop",
    "Provided.open": "what it opens lives in the event loop that opens it",
    "Provided.close": "what it closes lives in the event loop that opened it",
    "Worker.run": "a worker is its program's event loop: app.run_worker() blocks",
    "Bench": "laws of stores are coroutines, and so are the stores",
    "ManualClock": "laws of stores are coroutines, and so are the stores",
    "Law": "laws of stores are coroutines, and so are the stores",
}
ONLY_AWAITED = {("fan_out", "drafts"): "only a coroutine can take an async iterable"}


def coroutine_methods(face: type[Any]) -> Iterator[tuple[str, Any]]:
    for name, method in inspect.getmembers(face):
        is_awaited = inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)
        if is_awaited and not name.startswith("_"):
            yield name, method


def parameters(method: Any, name: str) -> list[tuple[str, Any, bool, Any]]:
    return [
        (
            each.name,
            each.kind,
            each.default is each.empty,
            None if (name, each.name) in ONLY_AWAITED else each.annotation,
        )
        for each in inspect.signature(method).parameters.values()
    ]


AWAITED = [
    pytest.param(face, name, method, id=f"{face.__name__}.{name}")
    for face in CLASSES
    for name, method in coroutine_methods(face)
    if not OTHERWISE.keys() & {face.__name__, f"{face.__name__}.{name}"}
]


@pytest.mark.parametrize(("face", "name", "method"), AWAITED)
def test_every_awaited_name_begins_with_a_and_has_a_blocking_twin(
    face: type[Any], name: str, method: Any
) -> None:
    assert name.startswith("a"), "a coroutine under a plain name"
    plain = name.removeprefix("a")
    twin = getattr(face, plain, None)
    assert twin is not None, f"there is no {plain}"
    assert not inspect.iscoroutinefunction(twin)
    assert parameters(twin, plain) == parameters(method, plain)
    assert inspect.getdoc(twin), f"{plain} is not documented"


def test_the_walk_sees_every_public_face() -> None:
    seen = {f"{each.id}" for each in AWAITED}
    assert seen >= {
        *("Control.apause", "Control.awhy", "Control.aset_limit", "Control.aopen_breaker"),
        *("Schedules.aput", "Handle.aresult", "Producer.aenqueue", "Flow.aenqueue"),
        *("Windlass.asend_event", "Windlass.astats", "Windlass.arun_worker"),
        *("EnqueueUncertain.aretry", "Travel.arun_all"),
    }


def test_every_exception_to_the_rule_is_still_one() -> None:
    named = {
        full
        for face in CLASSES
        for name, _ in coroutine_methods(face)
        for full in (face.__name__, f"{face.__name__}.{name}")
    }
    assert OTHERWISE.keys() - named == set()


def test_both_contexts_have_the_same_names_with_the_same_signatures() -> None:
    methods = {
        name: method
        for name, method in inspect.getmembers(Context, inspect.isfunction)
        if not name.startswith("_")
    }
    for name, method in methods.items():
        twin = getattr(SyncContext, name)
        assert not inspect.iscoroutinefunction(twin)
        given = {each[0]: each for each in parameters(method, name)}
        if name == "step":
            del given["timeout"]  # Nothing ends a function in a thread.
            del given["function"]  # An `async def` has no place in a `def` handler.
        taken = {each[0]: each for each in parameters(twin, name) if each[0] in given}
        assert taken == given
    assert set(dir(SyncContext)) - set(dir(Context)) == {"_steps"}


def test_control_and_schedules_work_in_blocking_code() -> None:
    app = Windlass("memory://")

    @app.job(queue="mail")
    async def send(to: str) -> str:
        return to

    assert app.control.pause("mail")
    assert app.control.paused().queues == {"mail"}
    handle = send.enqueue("ada")
    assert app.control.why(handle.id).reasons[0].cause == "paused"
    assert app.jobs.count(queue="mail") == 1
    app.schedules.put("nightly", send.draft("bob"), every="1d")
    assert [each.name for each in app.schedules.list()] == ["nightly"]
    with serving_in_a_thread(app):
        assert app.control.resume("mail")
        assert handle.result(timeout="30s") == "ada"
        assert app.control.purge_where(states=[State.COMPLETED]) == 1
    app.close()


def test_a_burst_runs_in_blocking_code() -> None:
    app = Windlass("memory://")

    @app.job
    async def add(a: int, b: int) -> int:
        return a + b

    handle = add.enqueue(1, 2)
    app.run_worker(burst=True)
    assert handle.result() == 3
    app.close()


def test_a_blocking_twin_in_an_event_loop_leaves_no_coroutine_behind() -> None:
    app = Windlass("memory://")

    async def main() -> None:
        with pytest.raises(windlass.CalledFromEventLoop, match=r"await app\.control\.apaused"):
            app.control.paused()

    asyncio.run(main())
