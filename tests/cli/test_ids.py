"""Ids on the command line: any unique beginning is enough, and what is shown can be typed."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from tests.support.screens import Glass, windlass_in
from windlass.core.jobs.ids import job_id
from windlass.core.jobs.states import State

if TYPE_CHECKING:
    from tests.cli.conftest import Shell

OLD = UUID("0197f3a2-6c1e-7b60-8000-3f1d2c4b5a69")
NEAR = UUID("0197f3a2-6c1e-7b60-8000-ff1d2c4b5a69")
FLOWS = """
from windlass import Windlass

app = Windlass()


@app.job
async def step() -> None: ...


app.group([step.draft() for _ in range(3)], then=step.draft()).enqueue()
"""


@pytest.fixture
def old(shell: Shell) -> Shell:
    """Return a shell with two jobs whose ids are known, and one that was enqueued now."""
    shell.ids.next = iter([OLD, NEAR]).__next__  # type: ignore[method-assign]
    shell.enqueue(due=timedelta(hours=1), count=2)
    del shell.ids.next
    return shell


@pytest.mark.parametrize(
    "given", ["0197f3a2-6c1e-7b60-8000-3", "0197f3a26c1e7b6080003f", str(OLD).upper(), OLD.hex]
)
def test_the_beginning_of_an_id_is_enough_for_every_command(old: Shell, given: str) -> None:
    assert old.ok("jobs", "show", given, "--json").json["id"] == str(OLD)
    assert old.ok("why", given, "--json").json["job"]["id"] == str(OLD)
    assert old.ok("jobs", "retry", given).out == f"{OLD}  pending\n"
    assert old.ok("jobs", "list", "--after", given, "--json").json["jobs"] == []
    assert old.ok("jobs", "cancel", given).out == f"{OLD}  cancelled\n"
    assert old.ok("jobs", "purge", given, "--yes").out == "1 job purged\n"
    assert old.job(NEAR).state is State.SCHEDULED


def test_dead_jobs_are_meant_by_the_beginnings_of_their_ids_too(shell: Shell) -> None:
    first, second = (job.hex[:30] for job in shell.dead(count=2))
    assert shell.ok("dead", "show", first, "--json").json["state"] == "dead"
    assert shell.ok("dead", "redrive", first, "--payload", '{"to": "b"}').out
    assert shell.ok("dead", "purge", second, "--yes").out == "1 dead job purged\n"


def test_a_beginning_of_several_ids_is_refused_with_what_it_could_be(old: Shell) -> None:
    for command in (("jobs", "show"), ("jobs", "cancel"), ("why",), ("dead", "show")):
        said = old(*command, "0197f3a2")
        said.refused("the prefix 0197f3a2 matches several ids", f"{OLD} (send_email, scheduled)")
        assert str(NEAR) in said.err
    said = old("dead", "redrive", "0197f3a2", "--json")
    assert (said.code, said.json["matched"]) == (1, 0)
    assert said.json["refused"][0]["id"] == "0197f3a2"


def test_a_prefix_that_matches_no_id_is_reported(old: Shell) -> None:
    old("jobs", "show", "dead0000").refused("no job has an id that starts with dead0000")
    old("jobs", "retry", "dead0000", OLD).refused("no job has an id that starts with dead0000")
    assert old.job(OLD).state is State.PENDING


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("019", "must have at least 4 digits, got '019'"),
        ("send_email", "must have up to 32 hexadecimal digits, got 'send_email'"),
        (f"{OLD}0", "must have up to 32 hexadecimal digits"),
    ],
)
def test_text_that_is_no_prefix_of_an_id_is_wrong_usage(shop: Shell, given: str, says: str) -> None:
    for command in (("jobs", "show"), ("jobs", "cancel"), ("dead", "purge"), ("flows", "show")):
        said = shop(*command, given)
        said.refused(code=2)
        assert says in re.sub(r"[\s│]+", " ", said.err)


def test_a_flow_is_meant_by_the_beginning_of_its_id_though_its_jobs_begin_alike(
    shell: Shell,
) -> None:
    shell.ok("migrate")
    shell.write("shop.py", FLOWS)
    shell.ok("jobs", "list", "--app", "shop:app")
    (flow,) = shell.ok("flows", "list", "--json").json["flows"]
    begun = flow["id"][:18]
    assert shell.ok("flows", "show", begun, "--json").json["id"] == flow["id"]
    shell("jobs", "show", begun).refused("matches several ids")
    assert shell.ok("flows", "cancel", begun, "--json").json["state"] == "cancelled"
    shell("flows", "show", "dead0000").refused("no job has an id that starts with")


def test_at_a_terminal_ids_are_short_and_can_be_typed(old: Shell, glasses: list[Glass]) -> None:
    far = job_id(1_700_000_000_000, 5)
    old.ids.next = iter([far]).__next__  # type: ignore[method-assign]
    old.enqueue("other")
    program = windlass_in(old.directory, "jobs", "list")
    glasses.append(Glass(program, columns=100, lines=24))
    glasses[-1].until(glasses[-1].has_ended)
    shown = re.findall(r"^[0-9a-f]{8}-[0-9a-f-]+", glasses[-1].text, re.MULTILINE)
    assert shown == ["0197f3a2-6c1e-7b60-8000-f", "0197f3a2-6c1e-7b60-8000-3", str(far)[:25]]
    for text, job in zip(shown, (NEAR, OLD, far), strict=True):
        assert old.ok("jobs", "show", text, "--json").json["id"] == str(job)
