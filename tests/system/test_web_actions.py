"""Every action of the web page in a real browser: from its link to what it changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.system.browsing import PROMPT, Shown, watched
from windlass import PermanentError, Windlass
from windlass.web.actions.registry import ACTIONS

pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One action: where its link is, what is typed, and what the page says when it is done."""

    action: str
    page: str
    """Where the link is; `{dead}` is the id of that job, `{here}` where the last action led."""
    names: str = ""
    """What the link names, where a page has the same action for several things."""
    typed: dict[str, str] = field(default_factory=dict)
    says: str


STEPS = (
    Step(action="retry-job", page="jobs/{scheduled}", says="The job is due now."),
    Step(action="cancel-job", page="jobs/{scheduled}", says="The job is cancelled."),
    Step(action="purge-job", page="jobs/{cancelled}", says="The job is deleted."),
    Step(action="redrive-job", page="jobs/{dead}", says="The job is pending again."),
    Step(
        action="edit-job",
        page="jobs/{failed}",
        typed={"payload.number.number": "8"},
        says="The job is pending again, with the new payload.",
    ),
    Step(
        action="enqueue",
        page="kinds",
        names="send_email",
        typed={"payload.text.to": "b@example.org"},
        says="The job is enqueued.",
    ),
    Step(
        action="pause-key",
        page="jobs/{keyed}",
        names="acme",
        says="Key acme is paused.",
    ),
    Step(action="resume-key", page="queues", names="acme", says="Key acme is no longer paused."),
    Step(action="pause-queue", page="queues", names="mail", says="Queue mail is paused."),
    Step(action="resume-queue", page="queues", names="mail", says="is no longer paused."),
    Step(action="pause-kind", page="kinds", names="charge", says="Kind charge is paused."),
    Step(action="resume-kind", page="kinds", names="charge", says="is no longer paused."),
    Step(
        action="set-limit",
        page="limits",
        names="gpu",
        typed={"concurrency": "5"},
        says="Limit gpu is changed.",
    ),
    Step(action="reset-limit", page="limits", names="gpu", says="Limit gpu is reset."),
    Step(action="probe-breaker", page="limits", says="Breaker stripe is half-open."),
    Step(action="close-breaker", page="limits", says="Breaker stripe is closed."),
    Step(action="open-breaker", page="limits", says="Breaker stripe is open."),
    Step(action="release-breaker", page="limits", says="Breaker stripe is"),
    Step(action="pause-schedule", page="schedules", names="nightly", says="is paused."),
    Step(action="resume-schedule", page="schedules", names="nightly", says="nightly is"),
    Step(action="run-schedule", page="schedules", names="nightly", says="The job is enqueued."),
    Step(action="remove-schedule", page="schedules", names="nightly", says="is removed."),
    Step(
        action="cancel-jobs",
        page="jobs?q=kind:charge state:pending",
        typed={"reason": "wrong price", "rate": "1/s"},
        says="The bulk operation is started",
    ),
    Step(action="pause-bulk", page="{here}", says="The bulk operation is paused."),
    Step(action="resume-bulk", page="{here}", says="The bulk operation is running."),
    Step(action="stop-bulk", page="{here}", says="The bulk operation is stopped."),
    Step(
        action="redrive-jobs",
        page="errors",
        typed={"reason": "fixed"},
        says="The bulk operation is started",
    ),
    Step(
        action="purge-jobs",
        page="jobs?q=state:completed",
        typed={"reason": "no longer needed"},
        says="The bulk operation is started",
    ),
)


def test_the_steps_are_all_actions() -> None:
    assert sorted(each.action for each in STEPS) == sorted(ACTIONS)


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_every_action_leads_from_its_link_to_what_it_changed(
    browser: Browser, tmp_path: Path, scripts: bool
) -> None:
    scene = Shown(tmp_path)
    with (
        scene.served() as address,
        watched(browser, address, java_script_enabled=scripts) as page,
    ):
        ids = {**scene.ids, **scene.do(_more_jobs)}
        here = ""
        for step in STEPS:
            known = {name: str(each) for name, each in ids.items()}
            page.goto(here if step.page == "{here}" else address + step.page.format(**known))
            _open(page, step)
            if scripts:
                violations = Axe().run(page).response["violations"]
                assert [(each["id"], each["nodes"][0]["html"]) for each in violations] == []
            for name, value in step.typed.items():
                page.locator(f"form [name='{name}']").fill(value)
            page.locator("main form button[type=submit]").click()
            expect(page.locator(".flash")).to_contain_text(step.says, timeout=PROMPT)
            here = page.url.partition("?")[0]
        assert len(scene.do(_audited)) == len(STEPS)


def _open(page: Page, step: Step) -> None:
    """Follow the link to the confirmation of an action, which is the same for a screen reader."""
    expect(page.locator("h1")).to_be_visible(timeout=PROMPT)
    link = page.locator(f"main a[href*='/actions/{step.action}?']")
    link = link.filter(has_text=step.names) if step.names else link
    link.first.click()
    expect(page.locator("main form code").first).to_contain_text("windlass ", timeout=PROMPT)


async def _more_jobs(app: Windlass) -> dict[str, UUID]:
    """Add two dead jobs, and one with a key that waits."""

    @app.job
    async def fail(number: int) -> None:
        raise PermanentError(f"number {number} is wrong")

    @app.job(queue="mail")
    async def send_email(to: str) -> None: ...

    failed, _ = [await fail.aenqueue(number) for number in (3, 5)]
    keyed = await send_email.using(key="acme", delay="1h").aenqueue("c@example.org")
    await app.arun_worker(burst=True)
    return {"failed": failed.id, "keyed": keyed.id}


async def _audited(app: Windlass) -> list[str]:
    entries = (await app.control.aaudit(limit=100)).entries
    return [each.action for each in entries if each.via == "web"]
