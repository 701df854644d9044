"""What cannot be a job is refused where it is registered, with the reason."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.app_on_store import Bed, on_embedded_stores
from windlass import ConfigError, PayloadInvalid, Retry

if TYPE_CHECKING:
    from decimal import Decimal


pytestmark = on_embedded_stores


def test_a_kind_is_registered_once(bed: Bed) -> None:
    app = bed.app()

    @app.job(name="mail", aliases=["post"])
    async def first() -> None: ...

    with pytest.raises(ConfigError, match="two handlers are registered for kind 'mail'"):
        app.job(name="mail")(_nothing)
    with pytest.raises(ConfigError, match="'post'"):
        app.job(name="post")(_nothing)
    with pytest.raises(ConfigError, match="'mail'"):
        app.job(name="parcel", aliases=["mail"])(_nothing)
    assert "parcel" not in app.registry, "a refused registration leaves nothing behind"


async def _nothing() -> None: ...


async def _many(*args: int) -> None: ...


async def _named(**kwargs: int) -> None: ...


async def _placed(a: int, /) -> None: ...


@pytest.mark.parametrize(
    ("function", "parameter"), [(_many, "*args"), (_named, "**kwargs"), (_placed, "a: 'int'")]
)
def test_parameters_without_a_name_of_their_own_are_refused(
    bed: Bed, function: Any, parameter: str
) -> None:
    with pytest.raises(ConfigError, match="give every parameter a name") as caught:
        bed.app().job(function)
    assert parameter in str(caught.value)


def test_annotations_that_cannot_be_read_at_run_time_are_refused(bed: Bed) -> None:
    async def pay(amount: Decimal) -> None: ...

    with pytest.raises(
        ConfigError, match="import the names at module level, outside TYPE_CHECKING"
    ) as caught:
        bed.app().job(pay)
    assert "pay" in str(caught.value)
    assert "Decimal" in str(caught.value)


def test_a_type_that_no_payload_can_hold_is_refused_at_registration_or_enqueue(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def hold(thing: Bed) -> None: ...

    with pytest.raises(PayloadInvalid, match="thing"):
        app.enqueue_many([hold.draft(bed)])


def test_wrong_options_are_refused_with_the_reason(bed: Bed) -> None:
    app = bed.app()
    with pytest.raises(
        ValueError, match="priority must be a whole number between -1,000 and 1,000"
    ):
        app.job(name="loud", priority=5000)(_nothing)
    assert "loud" not in app.registry, "a refused registration leaves nothing behind"
    with pytest.raises(ValueError, match="a queue must have a name"):
        app.job(name="a", queue=" ")(_nothing)
    with pytest.raises(ValueError, match="timeout must be a number and a unit"):
        app.job(name="b", timeout="soon")(_nothing)
    with pytest.raises(ConfigError, match="cannot be combined"):
        app.job(name="c", retry=Retry(), max_retries=3)(_nothing)
    assert not {"a", "b", "c"} & set(app.registry)


def test_options_and_a_function_do_not_mix(bed: Bed) -> None:
    job: Any = bed.app().job
    with pytest.raises(ConfigError, match="a function cannot be combined with options; write"):
        job(_nothing, queue="mail")


def test_a_timeout_is_three_hundred_seconds_unless_written_out(bed: Bed) -> None:
    app = bed.app()
    app.job(name="usual")(_nothing)
    app.job(name="short", timeout="2s")(_nothing)
    app.job(name="endless", timeout=None)(_nothing)
    default = app.settings.timeout
    assert default == timedelta(seconds=300)
    assert app.registry["usual"].timeout_or(default) == default
    assert app.registry["short"].timeout_or(default) == timedelta(seconds=2)
    assert app.registry["endless"].timeout_or(default) is None


def test_a_limit_that_cannot_be_is_refused_where_it_is_written(bed: Bed) -> None:
    """tests/core/policies/test_limit.py has the rules; here, the refusal is raised at import."""
    app = bed.app()
    nonsense: list[dict[str, Any]] = [
        {"rate": "fast"},
        {"rate": "-1/s"},
        {"concurrency": 0},
        {"units": 2},
        {"limit": "gpu", "units": 0},
        {"ordered": True},
        {"per": "key", "rate": "1/s"},
    ]
    job: Any = app.job

    async def work() -> None: ...

    for options in nonsense:
        with pytest.raises(ConfigError, match="kind 'work'"):
            job(**options)(work)

    with pytest.raises(ConfigError, match="needs rate= or concurrency="):
        app.limit("gpu")
    assert list(app.registry) == []
