"""Jobs have the tags of their kind, or those of their enqueue."""

from __future__ import annotations

from typing import Any

import pytest

from windlass import Context, Kind, Windlass
from windlass.core.jobs.job import TAGS


def tags_of(app: Windlass, handle: Any) -> tuple[str, ...]:
    return app.jobs.find(search=f"id:{handle.id}").jobs[0].tags


def test_a_kind_gives_its_jobs_tags_and_an_enqueue_gives_others() -> None:
    app = Windlass("memory://")

    @app.job(tags=["billing", "eu", "billing"])
    async def charge(order: int) -> None: ...

    assert tags_of(app, charge.enqueue(1)) == ("billing", "eu")
    assert tags_of(app, charge.using(tags=["vip"]).enqueue(1)) == ("vip",)
    assert tags_of(app, charge.using(tags=[]).enqueue(1)) == ()
    handle = charge.using(headers={"trace": "1"}, idempotency_key="k").enqueue(1)
    job = app.jobs.find(search=f"id:{handle.id}").jobs[0]
    assert job.headers == {"trace": "1", TAGS: "billing,eu", "idempotency-key": "k"}
    assert tags_of(app, app.enqueue("charge", {"order": 1})) == ("billing", "eu")
    kind = Kind("ship", dict[str, int])
    assert tags_of(app, app.producer(kind).using(tags=["x"]).enqueue({})) == ("x",)


def test_a_class_may_have_tags_as_an_attribute_and_as_data() -> None:
    app = Windlass("memory://")

    class Charge:
        tags = ("billing",)

        def __init__(self, order: int) -> None:
            self.order = order

        async def execute(self, ctx: Context) -> None: ...

    class Note:
        def __init__(self, tags: list[str]) -> None:
            self.tags = tags

        async def execute(self, ctx: Context) -> None: ...

    assert tags_of(app, app.job(Charge).enqueue(1)) == ("billing",)
    assert tags_of(app, app.job(Note).enqueue(["data"])) == ()


@pytest.mark.parametrize(
    ("tags", "says"),
    [
        ("vip", "tags must be a list of names, got 'vip'; write tags=['vip']"),
        (7, "tags must be a list of names"),
        (["a,b"], "without a comma"),
        (["a" * 101], "at most 100 characters"),
        ([" a"], "without spaces around"),
        ([""], "printable name"),
        (["a\n"], "printable name"),
        ([7], "printable name"),
        ([f"tag-{number}" for number in range(11)], "tags must be at most 10, got 11"),
    ],
)
def test_a_tag_that_could_not_be_found_is_refused(tags: Any, says: str) -> None:
    app = Windlass("memory://")

    @app.job
    async def charge(order: int) -> None: ...

    with pytest.raises(ValueError, match="got") as raised:
        charge.using(tags=tags)
    assert says in str(raised.value)
    with pytest.raises(ValueError, match="got") as raised:

        @app.job(tags=tags)
        async def ship(order: int) -> None: ...

    assert says in str(raised.value)
