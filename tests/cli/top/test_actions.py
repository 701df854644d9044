"""What is selected in `windlass top`, which action a key asks for there, and its effect."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from tests.support.screen_contents import busy, error, queue, snapshot
from windlass.app.snapshot import Snapshot, take_snapshot
from windlass.app.stats import Slow
from windlass.cli.app_target import load
from windlass.cli.top.actions import Action, pause_or_resume, perform, redrive_group, retry_job
from windlass.cli.top.content.panels import ERRORS, KINDS, QUEUES, WORKERS
from windlass.cli.top.selection import Selection
from windlass.core.jobs.states import State
from windlass.core.metrics.exposition import NAMES
from windlass.core.policies.pauses import Pauses

if TYPE_CHECKING:
    from tests.cli.conftest import Shell


def pause(figures: Snapshot | None, panel: int = QUEUES, position: int = 0) -> Action | str:
    selection = Selection()
    selection.panel = panel
    return pause_or_resume(selection.move(figures, position), figures)


def redrive(figures: Snapshot | None, panel: int = ERRORS) -> Action | str:
    selection = Selection()
    selection.panel = panel
    return redrive_group(selection.take(figures))


# -- the selection ---------------------------------------------------------------------------------


def test_the_queue_in_which_most_jobs_wait_comes_first() -> None:
    assert [row.key for row in Selection().rows(busy())[QUEUES]] == ["mail", "billing", "images"]


def test_a_row_stays_selected_when_others_come_before_it() -> None:
    selection = Selection()
    selection.move(busy(), 1)
    for figures, key in (
        (busy(), "billing"),
        (
            snapshot(queues=(queue("new", pending=10**6), queue("billing", pending=1))),
            "billing",
        ),
        (snapshot(queues=(queue("new", pending=10**6),)), "new"),
    ):
        rows = selection.rows(figures)
        assert rows[QUEUES][selection.position(rows)].key == key


# -- questions -------------------------------------------------------------------------------------


def test_p_pauses_a_running_queue_and_resumes_a_paused_one() -> None:
    assert pause(busy()) == Action(
        verb="pause",
        subject="queue",
        name="mail",
        question="pause queue mail, 1,204 waiting; running jobs finish?",
    )
    assert pause(busy(), position=1) == Action(
        verb="resume", subject="queue", name="billing", question="resume queue billing, 30 waiting?"
    )
    held = replace(busy(), pauses=Pauses(kinds=frozenset({"send_email"})))
    assert pause(held, KINDS) == Action(
        verb="resume", subject="kind", name="send_email", question="resume kind send_email?"
    )
    assert pause(held, KINDS, 1) == Action(
        verb="pause",
        subject="kind",
        name="resize_image",
        question="pause kind resize_image; running jobs finish?",
    )


def test_a_redrive_says_of_how_many_jobs() -> None:
    assert redrive(busy()) == Action(
        verb="redrive",
        subject="error",
        name="a3f09c11d2",
        kind="send_email",
        question="redrive 3 dead jobs of send_email, ConnectionError: mx1.example.org is gone?",
    )
    assert "no dead job has this error" in str(redrive(snapshot(errors=(error(dead=0),))))


def test_the_row_that_sums_up_queues_cannot_be_paused() -> None:
    """Prevents: a pause of a queue called `other`, which is none of those that are meant."""
    many = tuple(queue(f"q{number:03}") for number in range(NAMES))
    figures = snapshot(queues=(queue("other", pending=9), *many))
    assert "several queues" in str(pause(figures))
    selection = Selection()
    selection.filter = "other"
    assert "several queues" in str(pause_or_resume(selection.take(figures), figures))
    few = snapshot(queues=(queue("other", pending=9),))
    assert isinstance(pause(few), Action), "here it is one that is called so"


def test_where_a_key_does_nothing_it_says_what_it_is_for() -> None:
    assert "p pauses" in str(pause(busy(), ERRORS))
    assert "r redrives" in str(redrive(busy(), WORKERS))
    assert "r retries a scheduled job" in str(retry_job(None))
    for figures in (None, snapshot()):
        for panel in range(4):
            assert pause(figures, panel) == redrive(figures, panel) == "no row is selected"


# -- the store -------------------------------------------------------------------------------------


def test_a_redrive_ends_the_step_that_it_is_at(shop: Shell) -> None:
    died = shop.dead(count=600, message="no route")
    group = shop.ok("dead", "groups", "--json").json["groups"][0]["group"]
    action = Action(verb="redrive", subject="error", name=group, kind="send_email")
    steps: list[str] = []

    async def run() -> str:
        app = load("shop:app")
        try:
            return await perform(app, action, steps.append, lambda: bool(steps))
        finally:
            await app.aclose()

    assert asyncio.run(run()).startswith("500 of 600 redriven; for the others: ")
    assert shop.states(died[:500]) == {State.PENDING}
    assert shop.states(died[500:]) == {State.DEAD}


def test_slow_figures_are_read_seldom_and_after_a_change(shop: Shell) -> None:
    """Prevents: every two seconds a walk over all dead jobs, for each who looks."""
    shop.dead(message="no route")

    async def watch() -> list[int]:
        app = load("shop:app")
        try:
            slow = Slow(app.store)
            seen = [await take_snapshot(app, slow)]
            await app.control.aredrive([each.newest for each in await app.control.aerror_groups()])
            seen.append(await take_snapshot(app, slow))
            slow.forget()
            seen.append(await take_snapshot(app, slow))
        finally:
            await app.aclose()
        return [sum(error.dead for error in each.stats.errors) for each in seen]

    assert asyncio.run(watch()) == [1, 1, 0]


@pytest.mark.parametrize("every", ["0", "0.4", "-1", "soon"])
def test_a_slow_store_is_read_less_often(shop: Shell, every: str) -> None:
    shop("top", "--every", every).refused(code=2)
