"""Every option of a job is checked where it is written, and alike wherever it may be written."""

from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass
from typing import Any, ClassVar

import pytest

from windlass import ConfigError, ErrorClass, Retry, Windlass
from windlass.app.registration.job_classes import DATA


async def _nothing() -> None: ...


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"max_retries": -1},
            "max_retries must be a whole number between 0 and 1,000,000, got -1;",
        ),
        ({"max_retries": 2.5}, "max_retries must be a whole number between 0 and 1,000,000"),
        ({"max_retries": True}, "max_retries must be a whole number"),
        ({"max_retries": 10**12}, "max_retries must be a whole number between 0 and 1,000,000"),
        ({"max_retries": 2**63}, "max_retries must be a whole number between 0 and 1,000,000"),
        ({"retry": 5}, "retry must be a Retry, got 5; write"),
        ({"priority": "high"}, "priority must be a whole number between -1,000 and 1,000"),
        ({"timeout": 0}, r"timeout must be greater than zero, got 0; @app.job\(timeout=None\)"),
        ({"timeout": True}, "timeout must be a duration, got True"),
        (
            {"timeout": "soon"},
            "timeout must be a number and a unit, got 'soon'; write it like '30s'",
        ),
        ({"grace": "x"}, "grace must be a number and a unit, got 'x'; write"),
        ({"batch_timeout": "1s"}, "batch_timeout= must be given together with batch_size="),
        ({"batch_size": 2.5}, "batch_size must be a whole number between 1 and 100,000, got 2.5"),
        (
            {"batch_size": 10**9},
            "batch_size must be a whole number between 1 and 100,000, got 1000000000",
        ),
        ({"batch_size": True}, "batch_size must be a whole number between 1 and 100,000, got True"),
        ({"memory": 5}, "memory must be at least 16MB, got 5; .* write it like '512MB'"),
        ({"memory": "5kB"}, "memory must be at least 16MB, got '5kB'"),
        ({"memory": 1.5}, "memory must be an amount of memory, got 1.5"),
        (
            {"memory": "lots"},
            "memory must be a number and a unit, got 'lots'; write it like '512MB'",
        ),
        ({"name": "windlass"}, "must not be 'windlass', got 'windlass'; .* like 'my.windlass'"),
        ({"name": "windlass.x"}, "must not begin with 'windlass.', got 'windlass.x'"),
        ({"aliases": ["windlass"]}, "must not be 'windlass', got 'windlass'"),
        (
            {"batch_size": 10, "batch_timeout": "x"},
            "batch_timeout must be a number and a unit, got 'x'",
        ),
        ({"name": ""}, "a kind must have a name"),
        ({"queue": ""}, "a queue must have a name"),
        ({"aliases": "old"}, "aliases must be a list of names, got 'old'"),
        ({"aliases": 5}, "aliases must be a list of names, got 5"),
        ({"middleware": [5]}, "middleware must be a list of callables, got 5"),
        ({"middleware": 5}, "middleware must be a list, got 5"),
        ({"isolate": "yes"}, "isolate must be True or False, got 'yes'"),
        ({"cpu_bound": 1}, "cpu_bound must be True or False, got 1"),
        ({"ordered": 1, "key": "x"}, "ordered must be True or False, got 1"),
        ({"errors": 5}, "errors must be a mapping of exceptions to error classes, got 5"),
        ({"limit": 5}, "a limit must have a name, got 5"),
        ({"retires": 3}, "@app.job has no option 'retires'; did you mean '"),
    ],
)
def test_every_option_is_checked_where_it_is_written(options: dict[str, Any], message: str) -> None:
    app = Windlass("memory://")
    job: Any = app.job

    def handler(items: list[str]) -> None: ...

    with pytest.raises((ValueError, ConfigError), match=message):
        job(**{"name": "strange", **options})(handler)
    assert "strange" not in app.registry


@pytest.mark.parametrize("number", [-1, 2.5, True, 10**12, 2**63, "3"])
def test_an_option_is_refused_alike_wherever_it_is_given(number: Any) -> None:
    app = Windlass("memory://")
    handler = app.job(_nothing)
    message = "max_retries must be a whole number between 0 and 1,000,000, got"
    for give in (
        lambda: app.job(name="a", max_retries=number)(_nothing),
        lambda: handler.using(max_retries=number),
        lambda: Retry(max_retries=number),
    ):
        with pytest.raises(ValueError, match=message):
            give()


@pytest.mark.parametrize(
    ("on", "message"),
    [
        (5, "on must be a mapping of exceptions to policies, got 5; write"),
        ({5: Retry()}, "on must map exception classes, got 5; write"),
        ({ValueError: 5}, "the policy of ValueError must be a Retry, got 5; write"),
    ],
)
def test_policies_of_exceptions_are_checked_where_they_are_written(on: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Retry(on=on)


@pytest.mark.parametrize("given", [[5], 5, "log_run"])
def test_the_middleware_of_an_app_is_checked_like_that_of_a_kind(given: Any) -> None:
    with pytest.raises(ValueError, match="middleware must be a list"):
        Windlass("memory://", middleware=given)


def test_a_limit_whose_name_is_no_text_is_refused() -> None:
    name: Any = 5
    with pytest.raises(ConfigError, match="a limit must have a name, got 5"):
        Windlass("memory://").limit(name, concurrency=2)


def test_every_option_may_be_an_attribute_of_a_class() -> None:
    """Prevents an option that is silently not obeyed, since it is no part of some list."""

    @dataclass
    class Import:
        tenant: str
        name: ClassVar = "shop.import"
        aliases: ClassVar = ["import"]
        errors: ClassVar = {OSError: ErrorClass.SYSTEM}
        key = "tenant"
        per = "key"
        ordered = True
        limit = "gpu"
        units = 2
        weights: ClassVar = {"acme": 3}
        fair_by = "tenant"

        def execute(self) -> None: ...

    app = Windlass("memory://")
    app.job(Import)
    found = app.registry["import"]
    assert (found.kind, found.errors) == ("shop.import", {OSError: ErrorClass.SYSTEM})
    assert (found.key, found.weights) == ("tenant", {"acme": 3})
    assert (found.shared_limit, found.units) == ("gpu", 2)
    assert found.limit is not None
    assert (found.limit.keyed, found.limit.ordered) == (True, True)
    other = Windlass("memory://")
    other.job(name="given", units=5)(Import)
    assert (other.registry["given"].units, other.registry["given"].key) == (5, "tenant")


@pytest.mark.parametrize("name", ["batch_size", "batch_timeout"])
def test_an_attribute_that_no_class_can_have_as_an_option_is_refused(name: str) -> None:
    cls = type("Odd", (), {name: 5, "execute": lambda self: None})
    message = f"{name} must be an option of a function, got 5 as an attribute of Odd; make"
    with pytest.raises(ConfigError, match=message):
        Windlass("memory://").job(cls)


def test_fields_with_common_names_are_data() -> None:
    def execute(self: Any) -> None: ...

    fields = [(name, Any, None) for name in sorted(DATA)]
    app = Windlass("memory://")
    app.job(make_dataclass("Plain", fields, namespace={"execute": execute}))
    found = app.registry["Plain"]
    assert (found.key, found.shared_limit, found.errors, found.batch) == (None, None, {}, None)


def test_a_field_that_is_an_option_has_a_plain_default() -> None:
    @dataclass
    class Odd:
        max_retries: int = field(default_factory=lambda: 5)

        def execute(self) -> None: ...

    with pytest.raises(ConfigError, match="its default must be a plain value"):
        Windlass("memory://").job(Odd)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "retry",
            "grace",
            "isolate",
            "cpu_bound",
            "memory",
            "rate",
            "burst",
            "concurrency",
            "slo",
        ),
        *("breaker", "unique", "idempotency_key", "idempotent", "middleware"),
        *("ordered", "fair_by"),
    ],
)
def test_a_field_is_not_named_like_an_option_of_the_whole_class(name: str) -> None:
    def execute(self: Any) -> None: ...

    with_default = make_dataclass("Odd", [(name, Any, None)], namespace={"execute": execute})
    without = make_dataclass("Odd", [(name, Any)], namespace={"execute": execute})
    message = rf"the field '{name}' of Odd must not be named .* @app.job\({name}=...\); for data"
    for cls in (with_default, without):
        with pytest.raises(ConfigError, match=message):
            Windlass("memory://").job(cls)


def test_a_field_may_be_named_like_an_option_that_is_given() -> None:
    @dataclass
    class Charge:
        rate: float
        idempotency_key: str

        def execute(self) -> None: ...

    app = Windlass("memory://")
    app.job(rate="5/s", idempotency_key="idempotency_key")(Charge)
    assert "Charge" in app.registry
