"""`windlass restored`: parking, listing, releasing and cancelling jobs after a restore."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.core.jobs.states import State

if TYPE_CHECKING:
    from tests.cli.conftest import Shell


def test_jobs_are_parked_listed_released_and_cancelled(shop: Shell) -> None:
    (done,) = shop.enqueue(payload=b'{"to": "ada"}')
    (due,) = shop.enqueue(payload=b'{"to": "bob"}')
    said = shop.ok("restored", "park", "--dry-run")
    assert said.out.strip() == "2 jobs would be parked, 0 of which ran when the backup was made"
    document = shop.ok("restored", "park", "--yes", "--reason", "backup of 03:00", "--json").json
    assert (document["jobs"], document["waiting"], document["running"]) == (2, 2, 0)
    listed = shop.ok("restored", "list", "--json").json
    assert [each["id"] for each in listed["jobs"]] == [str(done), str(due)]
    assert not listed["has_more"]
    assert shop.ok("restored", "list", "--json", "--limit", 1).json["has_more"]
    assert "send_email" in shop.ok("restored", "list").out
    assert "parked after a restore" in shop.ok("jobs", "list").out
    said = shop.ok("why", due)
    assert "restored from a backup" in said.out
    found = shop.ok("doctor", "shop:app", "--json").json["warnings"]
    assert any("2 jobs parked after a restore" in each["problem"] for each in found)

    counted = shop.ok("restored", "cancel", "--find", "payload.to:ada", "--dry-run")
    assert counted.out.strip() == "1 parked job would be cancelled"
    assert shop.ok("restored", "cancel", done, "--yes").out.strip() == "1 parked job cancelled"
    document = shop.ok("restored", "release", "--all", "--yes", "--json").json
    assert document == {"matched": 1, "released": 1, "dry_run": False}
    assert (shop.job(done).state, shop.job(due).state) == (State.CANCELLED, State.PENDING)
    assert "no job is parked" in shop.ok("restored", "list").err
    reasons = [each["reason"] for each in shop.ok("audit", "list", "--json").json["entries"]]
    assert "backup of 03:00" in reasons


def test_parking_and_releasing_have_to_be_confirmed(shop: Shell) -> None:
    (job,) = shop.enqueue()
    shop("restored", "park").refused("confirmed", "--yes", code=2)
    assert shop.job(job).state is State.PENDING
    shop.ok("restored", "park", "--yes")
    shop("restored", "release", "--all").refused("confirmed", "--yes", code=2)
    for args in ((), ("--all", "--kind", "send_email"), (str(job), "--all")):
        shop("restored", "release", "--yes", *args).refused("only one of these", code=2)
    assert shop.job(job).state is State.SCHEDULED


def test_jobs_of_a_list_that_the_store_does_not_know_are_named(shop: Shell) -> None:
    (known,) = shop.enqueue()
    lost = shop.ids.next()
    ids = f"{known}\n\n{lost}\n{lost}\n"
    said = shop("restored", "missing", "-", stdin=ids)
    assert (said.code, said.out) == (1, f"{lost}\n")
    assert "1 of 3 jobs missing" in said.err
    shop.write("ids.txt", ids)
    document = shop("restored", "missing", shop.directory / "ids.txt", "--json").json
    assert [each["id"] for each in document["missing"]] == [str(lost)]
    assert shop.ok("restored", "missing", "-", stdin=f"{known}\n").out == ""
    shop("restored", "missing", "-", stdin="0197f3a2\n").refused("must be whole", code=2)


def test_a_worker_that_is_alive_is_named(shop: Shell) -> None:
    shop.register("w1")
    shop("restored", "park", "--yes").refused("1 alive (w1)", "stop them")
