"""`windlass flows`: listed, drawn however large they are, and cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pytest

from windlass import Flow, Handler, PermanentError, Windlass
from windlass.core.jobs.ids import member_id

if TYPE_CHECKING:
    from tests.cli.conftest import Shell

Step = Handler[[bool], None, [bool], object]


class Mill:
    """An app on the shell's store, whose steps fail if they are told to."""

    def __init__(self, shell: Shell) -> None:
        self.app = Windlass(f"sqlite:///{shell.file}", log_level="error")

        @self.app.job(max_retries=0)
        async def step(fails: bool = False) -> None:
            if fails:
                raise PermanentError("it fails")

        self.step = step

    def enqueue(self, build: Callable[[Flow, Mill], None], *, name: str = "nightly") -> str:
        flow = self.app.flow(name)
        build(flow, self)
        flow.enqueue()
        return str(flow.id)

    def work(self) -> None:
        """Work off whatever can be."""
        asyncio.run(asyncio.wait_for(self.app.arun_worker(burst=True, poll_interval="20ms"), 30))


@pytest.fixture
def mill(shell: Shell) -> Iterator[Mill]:
    """An app in whose store nothing is yet."""
    shell.ok("migrate")
    made = Mill(shell)
    yield made
    made.app.close()


def fan(flow: Flow, mill: Mill) -> None:
    first = flow.add(mill.step.draft(), name="extract")
    parts = [flow.add(mill.step.draft(), after=[first], name="part") for _ in range(5)]
    broken = flow.add(mill.step.draft(True), after=[first], name="audit")
    flow.add(mill.step.draft(), after=[*parts, broken], name="load")
    flow.on_finished(mill.step.draft())


def test_a_flow_is_drawn_with_its_jobs_below_their_parents(shell: Shell, mill: Mill) -> None:
    flow = mill.enqueue(fan)
    drawn = shell.ok("flows", "show", flow).out.splitlines()
    assert drawn[0] == "nightly  under way  0 of 9 jobs ended"
    first, *parts, audit, load, last = [member_id(UUID(flow), number) for number in range(1, 10)]
    some = ", ".join(str(each) for each in parts[:3])
    assert [line.rstrip() for line in drawn[1:]] == [
        flow,
        "",
        f" ▷ extract = step      pending  {first}",
        " │",
        f" ├─ ○ part = step (5)  ░░░░░░░░░░░░  5 waiting  after extract  {some}, …",
        f" ├─ ○ audit = step     waiting  after extract  {audit}",
        " │",
        f" ├─ ○ load = step      waiting  after part, audit  {load}",
        " │",
        f" └─ ○ step             waiting  after all others  {last}",
    ]


def test_a_flow_that_ended_is_drawn_as_it_ended(shell: Shell, mill: Mill) -> None:
    flow = mill.enqueue(fan)
    mill.work()
    drawn = shell.ok("flows", "show", flow).out
    assert "nightly  cancelled  2 of 9 jobs did not complete: audit (7), load (8)" in drawn
    assert "├─ ✓ part = step (5)  ████████████  5 completed" in drawn
    assert "├─ ✗ audit = step     dead" in drawn
    assert "├─ - load = step      cancelled" in drawn
    told = shell.ok("flows", "show", flow, "--json").json
    assert told["states"] == {"completed": 7, "dead": 1, "cancelled": 1}
    assert told["parts"][1] == {
        "name": "part",
        "kind": "step",
        "jobs": 5,
        "after": ["extract"],
        "states": {"completed": 5},
        "ids": {"completed": [str(member_id(UUID(flow), number)) for number in (2, 3, 4)]},
    }
    audit = member_id(UUID(flow), 7)
    assert f"✗ audit = step     dead  after extract  {audit}" in drawn
    shell.ok("jobs", "show", audit)


def test_undos_are_drawn(shell: Shell, mill: Mill) -> None:
    def strict(flow: Flow, mill: Mill) -> None:
        charge = flow.add(mill.step.draft(), undo=mill.step.draft(), name="charge")
        ship = flow.add(mill.step.draft(True), after=[charge], name="ship")
        flow.add(mill.step.draft(), after=[ship], name="thank", on_failure="compensate")

    flow = mill.enqueue(strict)
    mill.work()
    drawn = shell.ok("flows", "show", flow).out
    assert "✓ undo of charge = step  completed" in drawn


def test_ten_thousand_jobs_take_a_few_lines(shell: Shell, mill: Mill) -> None:
    def pairs(flow: Flow, mill: Mill) -> None:
        heads = [flow.add(mill.step.draft(), name="head") for _ in range(2_000)]
        tails = [flow.add(mill.step.draft(), after=[head], name="tail") for head in heads]
        flow.add(mill.step.draft(), after=tails, name="end")
        for number in range(100):
            flow.add(mill.step.draft(), name=f"odd-{number:03}")

    drawn = shell.ok("flows", "show", mill.enqueue(pairs)).out.splitlines()
    assert len(drawn) < 70
    assert any("head = step (2,000)" in line for line in drawn)
    assert drawn[-1] == " └─ … and 2,042 jobs more, of 43 other names"


def test_flows_are_listed_the_newest_first(shell: Shell, mill: Mill) -> None:
    def one(flow: Flow, mill: Mill) -> None:
        flow.add(mill.step.draft())

    first = mill.enqueue(one, name="first")
    mill.work()
    second = mill.enqueue(fan, name="second")
    listed = shell.ok("flows", "list").out
    assert listed.index(second) < listed.index(first)
    assert "0 of 9 jobs ended" in listed
    found = shell.ok("flows", "list", "--json").json["flows"]
    assert [(each["name"], each["state"], each["jobs"]) for each in found] == [
        ("second", "scheduled", 9),
        ("first", "completed", 1),
    ]
    only = shell.ok("flows", "list", "--state", "completed", "--json").json["flows"]
    assert [each["id"] for each in only] == [first]
    assert "there are more: --after" in shell.ok("flows", "list", "--limit", "1").err


def test_an_empty_list_of_flows_says_so(shell: Shell, mill: Mill) -> None:
    del mill
    assert "no flows" in shell.ok("flows", "list").err


def test_cancelling_a_flow_cancels_what_has_not_run(shell: Shell, mill: Mill) -> None:
    flow = mill.enqueue(fan)
    assert (
        shell.ok("flows", "cancel", flow, "--reason", "moot").out == f"{flow}  9 jobs cancelled\n"
    )
    assert shell.ok("flows", "show", flow, "--json").json["reason"] == "moot"
    shell("flows", "cancel", flow).refused("only waiting and running jobs can be cancelled")
    other = mill.enqueue(fan)
    shell.ok("jobs", "cancel", other)
    assert shell.ok("flows", "show", other, "--json").json["states"] == {"cancelled": 9}


def test_a_job_tells_to_which_flow_it_belongs(shell: Shell, mill: Mill) -> None:
    flow = mill.enqueue(fan)
    told = shell.ok("jobs", "show", flow[:-1] + "2").out
    assert f"flow:{flow}:2" in told
    assert shell.ok("jobs", "show", flow[:-1] + "2", "--json").json["flow"] == flow


def test_a_job_that_is_no_flow_is_refused(shell: Shell, mill: Mill) -> None:
    flow = mill.enqueue(fan)
    member = flow[:-1] + "1"
    plain = str(mill.step.enqueue().id)
    shell("flows", "show", member).refused(f"it is part of flow {flow}")
    shell("flows", "show", plain).refused("it is a plain job")
    shell("flows", "cancel", plain).refused("it is a plain job")
    shell("flows", "show", uuid4()).refused("no job has the id")
