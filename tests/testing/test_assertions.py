"""What a test is told about its jobs, and above all where it expected something else."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from base64 import b64encode
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from windlass import Cancel, Kind, PermanentError, Secret, State, Windlass
from windlass.core.jobs.job import Checkpoint
from windlass.testing import Bench, ManualClock, Travel, travel_fixture

app = Windlass("memory://", encryption_keys=f"test:{b64encode(bytes(32)).decode()}")
t = travel_fixture(app)


@app.job(name="send", queue="mail")
async def send(to: str, copies: int = 1) -> dict[str, int]:
    if to == "nobody":
        raise PermanentError("there is no such mailbox")
    return {to: copies}


@app.job(name="log_in")
async def log_in(user: str, password: Secret[str]) -> None: ...


@app.job(name="skip")
async def skip() -> Cancel:
    return Cancel("moot")


def write_steps(t: Travel, log: list[str]) -> None:
    """Write a log of steps for the one job that there is, as a worker would."""

    async def write() -> None:
        bench = Bench(app.store, ManualClock(t.now))
        job = await bench.start_again(t.jobs()[0].id)
        assert job.token is not None
        await app.store.checkpoint([Checkpoint(id=job.id, token=job.token, steps=tuple(log))])

    asyncio.run(write())


def refused(call: object, *args: object, **kwargs: object) -> str:
    """Return what an assertion says that does not hold."""
    assert callable(call)
    with pytest.raises(AssertionError) as caught:
        call(*args, **kwargs)
    return str(caught.value)


# -- what is meant -----------------------------------------------------------------------------


def test_a_job_is_meant_by_its_handler_its_kind_its_arguments_its_handle_or_its_id(
    t: Travel,
) -> None:
    handle = send.enqueue("ada", copies=2)
    for what in (send, "send", Kind("send", dict), send.draft("ada", 2), handle, handle.id):
        assert t.assert_enqueued(what).id == handle.id
    for other in (log_in, "log_in", send.draft("ada"), send.draft("bob", 2), uuid4()):
        t.assert_not_enqueued(other)


def test_secrets_are_compared_by_what_they_hide(t: Travel) -> None:
    log_in.enqueue("ada", Secret("hunter2"))
    t.assert_enqueued(log_in.draft("ada", Secret("hunter2")))
    told = refused(t.assert_enqueued, log_in.draft("ada", Secret("other")))
    assert "hunter2" not in told


def test_the_newest_is_returned_and_all_are_listed_in_order(t: Travel) -> None:
    handles = [send.enqueue(name) for name in ("ada", "bob")]
    assert [job.id for job in t.jobs(send)] == [handle.id for handle in handles]
    assert t.jobs(send, State.COMPLETED) == []
    assert t.assert_enqueued(send, count=2).id == handles[1].id


# -- what waits --------------------------------------------------------------------------------


def test_a_waiting_job_is_checked_by_all_that_it_was_enqueued_with(t: Travel) -> None:
    send.using(queue="slow", priority=7, key="ada", delay="1h").enqueue("ada")
    t.assert_enqueued(send, queue="slow", priority=7, key="ada", due="1h")
    t.assert_enqueued(send, due=t.now + timedelta(hours=1))
    for wrong in ({"queue": "mail"}, {"priority": 0}, {"key": "bob"}, {"due": "2h"}):
        ((name, _),) = wrong.items()
        told = refused(t.assert_enqueued, send, **wrong)
        assert f"no job waits that is send with {name}" in told
        assert 'it is:\n  send {"to":"ada"} scheduled in 1h queue=slow priority=7 key=ada' in told


def test_a_job_that_has_run_no_longer_waits(t: Travel) -> None:
    send.enqueue("ada")
    t.run_due()
    t.assert_not_enqueued(send)
    assert 'send {"to":"ada"} completed' in refused(t.assert_enqueued, send)


def test_one_that_should_not_wait_is_shown(t: Travel) -> None:
    send.enqueue("ada")
    assert refused(t.assert_not_enqueued, send) == (
        'send waits:\n  send {"to":"ada"} pending queue=mail'
    )


def test_a_failed_assertion_lists_the_jobs_that_were_enqueued(t: Travel) -> None:
    assert refused(t.assert_enqueued, send).endswith("nothing was enqueued")
    skip.enqueue()
    assert "all jobs:\n  skip {} pending" in refused(t.assert_enqueued, send)
    send.enqueue("bob")
    told = refused(t.assert_enqueued, send.draft("ada"))
    assert told == (
        'no job waits that is send {"to":"ada"}; of its kind there are:\n  send {"to":"bob"} '
        "pending queue=mail"
    )


def test_a_wrong_count_is_reported_and_long_lists_are_cut(t: Travel) -> None:
    for number in range(15):
        send.enqueue(f"number {number}")
    told = refused(t.assert_enqueued, send, count=3)
    assert "15 instead of 3 jobs: waits, send" in told
    assert "... and 5 before these" in told
    assert "number 14" in told
    assert "number 4" not in told


# -- what became of it -------------------------------------------------------------------------


def test_results_are_compared_as_they_are_stored(t: Travel) -> None:
    handle = send.enqueue("ada", 2)
    t.run_due()
    t.assert_completed(handle, result={"ada": 2})
    told = refused(t.assert_completed, handle, result={"ada": 3})
    assert "with result={'ada': 3}" in told
    assert 'result={"ada":2}' in told


def test_the_dead_are_known_by_their_error(t: Travel) -> None:
    handle = send.enqueue("nobody")
    t.run_due()
    t.assert_dead(send)
    t.assert_dead(handle, error=PermanentError)
    t.assert_dead(handle, error="no such mailbox", count=1)
    assert "with error='KeyError'" in refused(t.assert_dead, handle, error=KeyError)
    assert "PermanentError: there is no such mailbox" in refused(t.assert_completed, send)


def test_a_cancelled_job_is_neither_dead_nor_completed(t: Travel) -> None:
    skip.enqueue()
    t.run_due()
    assert t.assert_cancelled(skip).reason == "moot"
    assert "skip {} cancelled queue=default attempt=1 (moot)" in refused(t.assert_dead, skip)
    assert refused(t.assert_cancelled, send).startswith("no job was cancelled that is send")


# -- steps -------------------------------------------------------------------------------------


def test_steps_and_undos_are_read_from_the_log(t: Travel) -> None:
    handle = send.enqueue("ada")
    log = [
        '{"entry":"started","name":"reserve"}',
        '{"entry":"done","name":"reserve"}',
        '{"entry":"done","name":"reserve"}',
        '{"entry":"failed","name":"charge","error":"no"}',
        '{"entry":"slept","name":"night"}',
        '{"entry":"waited","name":"paid"}',
        '{"entry":"undoing","state":"dead"}',
        '{"entry":"undone","name":"reserve"}',
        '{"entry":"over"}',
    ]
    write_steps(t, log)
    assert t.steps(handle) == ["reserve", "night", "paid"]
    t.assert_steps(handle, "reserve", "night", "paid")
    t.assert_undone(handle, "reserve")
    told = refused(t.assert_steps, handle, "reserve", "charge")
    assert re.match(r"job .* has finished reserve, night, paid, not reserve, charge:\n  send", told)
    assert "has undone reserve, not nothing" in refused(t.assert_undone, handle)


def test_steps_are_asked_for_of_one_job(t: Travel) -> None:
    assert "expected one job, but send matches 0" in refused(t.steps, send)
    send.enqueue("ada")
    send.enqueue("bob")
    assert "expected one job, but send matches 2; of these:\n  send" in refused(t.steps, send)


# -- how a test that fails looks ---------------------------------------------------------------

FAILING = """
import pytest
from windlass import Windlass
from windlass.testing import travel_fixture

app = Windlass()
t = travel_fixture(app)


def charge(cents):
    return 100 / cents  # the culprit


@app.job(max_retries=0)
async def pay(cents: int) -> None:
    charge(cents)


def test_payment(t):
    pay.enqueue(0)
    t.run_due()
    t.assert_completed(pay)
"""


def test_pytest_shows_where_the_handler_failed_and_none_of_our_frames(tmp_path: Path) -> None:
    """Prevents a page of our own code, which ended without a word about the user's."""
    (tmp_path / "test_shop.py").write_text(FAILING)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shop.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "t.assert_completed(pay)" in done.stdout
    assert 'test_shop.py", line 11, in charge' in done.stdout
    assert "return 100 / cents  # the culprit" in done.stdout
    assert "ZeroDivisionError: division by zero" in done.stdout
    assert "windlass/testing" not in done.stdout
    assert "_expect" not in done.stdout
