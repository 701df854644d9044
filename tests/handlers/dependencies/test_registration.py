"""A handler that no run could give its dependencies is refused when it is registered."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from tests.handlers.provided.pools import Pool
from windlass import ConfigError, Context, Inject, PayloadInvalid, SyncContext, Windlass
from windlass.testing import travel

if TYPE_CHECKING:
    from decimal import Decimal


class Session:
    """What a run has for itself."""


def get_session() -> Session:
    return Session()


def get_number(number: int) -> int:
    return number


def get_user(number: int = Inject(get_number)) -> str:
    return str(number)


def first(other: int = 0) -> int:
    return other


def second(other: int = Inject(first)) -> int:
    return other


@pytest.fixture
def app() -> Windlass:
    return Windlass("memory://")


def test_a_dependency_is_no_part_of_the_payload(app: Windlass) -> None:
    @app.job
    async def by_default(order: int, session: Session = Inject(get_session)) -> None: ...

    @app.job
    async def annotated(
        order: int, session: Annotated[Session, Inject(get_session)], note: str = ""
    ) -> None: ...

    taken: Any = annotated
    with travel(app) as t:
        by_default.enqueue(1)
        taken.enqueue(order=1, note="x")
        assert [job.payload for job in t.jobs()] == [b'{"order":1}', b'{"order":1,"note":"x"}']
        for call in (by_default.enqueue, annotated.enqueue):
            with pytest.raises(PayloadInvalid, match="the worker injects this value; leave it out"):
                call(1, session=Session())
    for kind in ("by_default", "annotated"):
        schema = app.registry[kind].target.codec.json_schema()
        assert schema is not None
        assert "order" in str(schema)
        assert "session" not in str(schema)


def test_a_dependency_that_only_a_web_request_could_fill_is_refused_with_a_remedy(
    app: Windlass,
) -> None:
    async def send(user: str = Inject(get_user)) -> None: ...

    with pytest.raises(
        ConfigError,
        match=r"kind 'send': the dependency get_number, which get_user needs, takes `number: int`, "
        r"which only a web request has; .* app\.dependency_overrides\[get_number\] = ",
    ):
        app.job(send)


def test_an_override_stands_for_a_dependency_that_no_run_could_have(app: Windlass) -> None:
    app.dependency_overrides[get_number] = lambda: 5

    @app.job
    async def send(user: str = Inject(get_user)) -> str:
        return user

    with travel(app) as t:
        send.enqueue()
        t.run_due()
        t.assert_completed(send, result="5")
        app.dependency_overrides[get_user] = lambda: "other"
        send.enqueue()
        t.run_due()
        t.assert_completed(send, result="other")
        app.dependency_overrides.clear()


def test_dependencies_that_need_each_other_are_refused(app: Windlass) -> None:
    app.dependency_overrides[first] = second

    async def send(number: int = Inject(first)) -> None: ...

    with pytest.raises(ConfigError, match="need each other: second -> second; remove the cycle"):
        app.job(send)


def test_a_batch_has_no_context_for_its_dependencies(app: Windlass) -> None:
    async def tenant(ctx: Context) -> str:
        return ctx.kind

    async def many(orders: list[int], name: str = Inject(tenant)) -> None: ...

    with pytest.raises(ConfigError, match="tenant takes the context of a run, but a batch has"):
        app.job(batch_size=2)(many)


def test_a_dependency_has_the_context_of_its_own_sort(app: Windlass) -> None:
    def tenant(ctx: Context) -> str:
        return ctx.kind

    async def send(name: str = Inject(tenant)) -> None: ...

    with pytest.raises(ConfigError, match="ctx must be a SyncContext in a `def`, got Context"):
        app.job(send)


def test_a_field_of_a_job_class_cannot_be_a_dependency(app: Windlass) -> None:
    job: Any = app.job
    for cls in (ByDefault, ByAnnotation):
        with pytest.raises(ConfigError, match=r"the field 'session' of .* cannot be injected"):
            job(cls)


@dataclass
class ByDefault:
    """No job, since its fields are its payload."""

    session: Session = Inject(get_session)

    def execute(self, ctx: SyncContext) -> None: ...


@dataclass
class ByAnnotation:
    """No job, since its fields are its payload."""

    session: Annotated[Session, Inject(get_session)]

    def execute(self, ctx: SyncContext) -> None: ...


def test_providers_and_hooks_have_no_dependencies(app: Windlass) -> None:
    def pool(session: Session = Inject(get_session)) -> Pool:
        return Pool()

    with pytest.raises(ConfigError, match=r"provider pool asks for `session = Inject.get_session"):
        app.provide(pool)

    @app.on_start
    async def start(session: Session = Inject(get_session)) -> None: ...

    with pytest.raises(ConfigError, match=r"hook .*start asks for `session = Inject.get_session"):
        app.run_worker(burst=True)


def test_a_provided_value_that_a_dependency_needs_must_exist_before_a_worker_starts(
    app: Windlass,
) -> None:
    def needy(db: Pool = Inject) -> str:
        return db.name

    @app.job
    def send(name: str = Inject(functools.partial(needy))) -> None: ...

    with pytest.raises(ConfigError, match="the handler of 'send' asks for `db: Pool`, but no"):
        app.run_worker(burst=True)


def test_the_result_of_a_dependency_may_be_named_for_type_checkers_only(app: Windlass) -> None:
    def late() -> Decimal:
        return 1  # type: ignore[return-value]

    def unknown(amount: Decimal) -> None: ...

    @app.job
    def pay(amount: int = Inject(late)) -> int:
        return amount

    with travel(app) as t:
        pay.enqueue()
        t.run_due()
        t.assert_completed(pay, result=1)

    async def refused(amount: None = Inject(unknown)) -> None: ...

    with pytest.raises(ConfigError, match=r"annotations of .*unknown cannot be evaluated"):
        app.job(refused)


def test_only_what_can_be_called_is_a_dependency() -> None:
    with pytest.raises(ConfigError, match=r"must be given a function that .*, got 5"):
        Inject(5)


def test_a_direct_call_without_a_dependency_says_so(app: Windlass) -> None:
    @app.job
    def send(session: Session = Inject(get_session)) -> object:
        return session.name  # type: ignore[attr-defined]

    with pytest.raises(AttributeError, match="left out of a direct call; pass it by name"):
        send()
    assert repr(Inject(get_session)) == "Inject(get_session)"
