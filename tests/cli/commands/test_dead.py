"""`windlass dead`: nothing is redriven or purged that was not meant."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from windlass.app.control import bulk
from windlass.cli.actions import bulk_moves
from windlass.core.jobs.states import State
from windlass.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from tests.cli.conftest import Shell

NOBODY = UUID("0197f3a2-6c1e-7b60-8000-3f1d2c4b5a69")


def left(shell: Shell) -> set[str]:
    return {job["id"] for job in shell.ok("dead", "list", "--json").json["jobs"]}


def test_only_dead_jobs_are_listed_with_why_they_are_dead(shell: Shell) -> None:
    (job_id,) = shell.dead(message="no such user")
    shell.enqueue("other")
    said = shell.ok("dead", "list")
    assert len(said.out.splitlines()) == 3
    for part in (str(job_id), "gave up after 1 failure", "ValueError: no such user"):
        assert part in said.out
    assert left(shell) == {str(job_id)}


def test_a_job_that_is_not_dead_is_not_shown_as_one(shell: Shell) -> None:
    (pending,) = shell.enqueue()
    shell("dead", "show", pending).refused(f"windlass jobs show {pending}")
    (job_id,) = shell.dead("other")
    assert "gave up" in shell.ok("dead", "show", job_id).out
    assert shell.ok("dead", "show", job_id, "--json").json["state"] == "dead"


def test_redrive_gives_the_named_jobs_a_new_life_and_no_others(shell: Shell) -> None:
    first, second, third = shell.dead(count=3)
    assert shell.ok("dead", "redrive", first, third).out == "2 dead jobs redriven\n"
    assert left(shell) == {str(second)}
    assert shell.job(first).state is State.PENDING


def test_redrive_goes_by_kind_and_queue(shell: Shell) -> None:
    (meant,) = shell.dead("a", queue="mail")
    (other_kind,) = shell.dead("b", queue="mail")
    (other_queue,) = shell.dead("a", queue="slow")
    shell.ok("dead", "redrive", "--kind", "a", "--queue", "mail")
    assert left(shell) == {str(other_kind), str(other_queue)}
    assert shell.job(meant).state is State.PENDING


def test_all_are_moved_in_chunks(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "CHUNK", 2)
    monkeypatch.setattr(bulk_moves, "CHUNK", 2)
    shell.dead(count=5)
    said = shell.ok("dead", "redrive", "--all", "--json")
    assert said.json == {"matched": 5, "redriven": 5, "dry_run": False, "refused": []}
    assert left(shell) == set()


@pytest.mark.parametrize("command", [("redrive",), ("purge", "--yes")])
def test_a_limit_takes_the_oldest(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """As docs/dead-letters.md says, and as the jobs would have run."""
    monkeypatch.setattr(bulk, "CHUNK", 2)
    monkeypatch.setattr(bulk_moves, "CHUNK", 2)
    ids = shell.dead(count=5)
    shell.ok("dead", *command, "--all", "--limit", 1)
    assert left(shell) == {str(each) for each in ids[1:]}
    shell.ok("dead", *command, "--all", "--limit", 3)
    assert left(shell) == {str(ids[4])}


def test_a_dry_run_counts_and_changes_nothing(shell: Shell) -> None:
    shell.dead(count=2)
    assert shell.ok("dead", "redrive", "--all", "--dry-run").out == (
        "2 dead jobs would be redriven\n"
    )
    assert shell.ok("dead", "purge", "--all", "--dry-run").out == "2 dead jobs would be purged\n"
    assert len(left(shell)) == 2


def test_ids_of_jobs_that_are_not_dead_are_reported_and_the_others_are_redriven(
    shell: Shell,
) -> None:
    (job_id,) = shell.dead()
    (pending,) = shell.enqueue("other")
    said = shell("dead", "redrive", pending, job_id, NOBODY, "--json")
    assert said.code == 1
    assert (said.json["matched"], said.json["redriven"]) == (1, 1)
    assert [each["id"] for each in said.json["refused"]] == [str(pending), str(NOBODY)]
    assert f"job {pending} is pending, not dead" in said.err


@pytest.mark.parametrize("command", ["redrive", "purge"])
@pytest.mark.parametrize(
    "args",
    [
        (),
        ("--limit", "5"),
        ("--all", "--kind", "a"),
        (str(NOBODY), "--all"),
        (str(NOBODY), "--queue", "a"),
        (str(NOBODY), "--limit", "1"),
        ("--all", "--limit", "0"),
        ("mail",),
        ("019",),
    ],
    ids=" ".join,
)
def test_which_jobs_are_meant_must_be_said_in_one_way(
    shell: Shell, command: str, args: tuple[str, ...]
) -> None:
    shell.dead()
    shell("dead", command, *args).refused(code=2)
    assert len(left(shell)) == 1


def test_purge_deletes_for_ever(shell: Shell) -> None:
    first, second = shell.dead(count=2)
    assert shell.ok("dead", "purge", first, "--yes").out == "1 dead job purged\n"
    assert left(shell) == {str(second)}
    shell("jobs", "show", first).refused("no job has the id")


def test_purge_is_refused_without_a_terminal(shell: Shell) -> None:
    shell.dead()
    shell("dead", "purge", "--all").refused("confirm with --yes", code=2)
    assert len(left(shell)) == 1


def test_purge_asks_how_many_and_takes_no_for_an_answer(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_moves, "can_ask", lambda: True)
    shell.dead(count=2)
    said = shell("dead", "purge", "--all", stdin="n\n")
    assert said.code == 1
    assert "Delete 2 dead jobs permanently?" in said.err
    assert len(left(shell)) == 2
    assert "2 dead jobs purged\n" in shell.ok("dead", "purge", "--all", stdin="y\n").out
    assert left(shell) == set()


def test_nothing_that_fits_is_no_error_and_nobody_is_asked(
    shop: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_moves, "can_ask", lambda: True)
    assert shop.ok("dead", "purge", "--kind", "a").out == "0 dead jobs purged\n"


def test_groups_tell_what_jobs_died_of_and_how_many(shell: Shell) -> None:
    shell.dead("a", message="user 1 is unknown")
    shell.dead("a", message="user 22 is unknown")
    shell.dead("b", message="no")
    told = shell.ok("dead", "groups", "--json").json["groups"]
    assert [(group["kind"], group["count"]) for group in told] == [("a", 2), ("b", 1)]
    assert told[0]["error"] == "ValueError: user 22 is unknown"
    said = shell.ok("dead", "groups").out
    assert told[0]["group"] in said
    assert "user 22 is unknown" in said
    assert shell.ok("dead", "groups", "--kind", "b", "--json").json["groups"] == told[1:]


def test_where_nothing_is_dead_there_are_no_groups(shell: Shell) -> None:
    shell.enqueue()
    assert shell.ok("dead", "groups").err == "no dead jobs\n"
    assert shell.ok("dead", "groups", "--json").json == {"groups": [], "searched_to": None}


def test_a_whole_group_is_listed_redriven_and_purged(shell: Shell) -> None:
    meant = shell.dead("a", count=3, message="user 1 is unknown")
    others = shell.dead("a", count=2, message="no")
    group, other = (each["group"] for each in shell.ok("dead", "groups", "--json").json["groups"])
    listed = shell.ok("dead", "list", "--group", group, "--json").json["jobs"]
    assert {job["id"] for job in listed} == {str(job) for job in meant}
    for wrong in (group[:4], "zzz"):
        part = shell("dead", "redrive", "--group", wrong, "--dry-run")
        assert part.code == 2
        told = " ".join(part.err.replace("│", " ").split())
        assert f"as `windlass dead groups` lists it, got {wrong!r}; --find error:{wrong}" in told
    said = shell.ok("dead", "redrive", "--group", group, "--limit", "2", "--dry-run")
    assert said.out == "2 dead jobs would be redriven\n"
    assert len(left(shell)) == 5
    shell.ok("dead", "redrive", "--group", group)
    assert left(shell) == {str(job) for job in others}
    shell.ok("dead", "purge", "--group", other, "--yes")
    assert left(shell) == set()


def test_redrive_keeps_to_a_rate(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("windlass.cli.actions.bulk_moves.asyncio.sleep", sleep)
    shell.dead(count=5)
    assert shell.ok("dead", "redrive", "--all", "--rate", "20/s").out == "5 dead jobs redriven\n"
    assert slept == [0.1, 0.1], "two at a time, and none after the last"
    shell("dead", "redrive", "--all", "--rate", "quickly").refused("a rate must be", code=2)


def test_a_payload_is_mended_and_the_job_redriven(shell: Shell) -> None:
    first, second = shell.dead(count=2)
    shell.ok("dead", "redrive", first, "--payload", '{"to": "b@example.org"}')
    assert shell.job(first).payload == b'{"to":"b@example.org"}'
    assert shell.job(first).state is State.PENDING
    shell("dead", "redrive", second, "--payload", "{to: me}").refused("not valid JSON")
    shell("dead", "redrive", "--all", "--payload", "{}").refused("give its id", code=2)
    said = shell.ok("dead", "redrive", second, "--payload", "{}", "--dry-run")
    assert said.out == "1 dead job would be redriven\n"
    assert left(shell) == {str(second)}


def test_a_payload_is_mended_in_an_editor(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bulk_moves, "can_ask", lambda: True)
    (job_id,) = shell.dead()
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i s/a@example/c@example/ "$1"\n')
    editor.chmod(0o755)
    monkeypatch.setenv("VISUAL", "true")
    said = shell("dead", "redrive", job_id, "--edit")
    assert said.code == 1
    assert "the payload was not changed" in said.err
    monkeypatch.setenv("VISUAL", str(editor))
    shell.ok("dead", "redrive", job_id, "--edit")
    assert shell.job(job_id).payload == b'{"to":"c@example.org"}'


def editing(monkeypatch: pytest.MonkeyPatch, shell: Shell, *commands: str) -> None:
    """Let somebody edit by one command of sed after the other, and keep what they saw."""
    monkeypatch.setattr(bulk_moves, "can_ask", lambda: True)
    steps = "\n".join(f"{number}) sed -i '{each}' \"$1\";;" for number, each in enumerate(commands))
    editor = shell.directory / "editor"
    editor.write_text(
        f"#!/bin/sh\ncd {shlex.quote(str(shell.directory))}\nn=$(ls seen.* 2>/dev/null | wc -l)\n"
        f'cp "$1" seen.$n\ncase $n in\n{steps}\nesac\n'
    )
    editor.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(editor))


def test_an_invalid_payload_is_edited_again_without_losing_text(
    shop: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job_id,) = shop.dead()
    editing(monkeypatch, shop, 's/"a@.*"/broken/', "s/broken/5/", 's/5/"b@example.org"/')
    said = shop("dead", "redrive", job_id, "--edit", "--app", "shop:app", stdin="y\ny\n")
    assert said.code == 0, said.err
    assert "not valid JSON" in said.err
    assert "invalid payload for" in said.err, "the handler wants text"
    assert "broken" in (shop.directory / "seen.1").read_text()
    assert '"to": 5' in (shop.directory / "seen.2").read_text()
    assert shop.job(job_id).payload == b'{"to":"b@example.org"}'


@pytest.mark.parametrize(
    ("commands", "answer"),
    [(['s/"a@.*"/broken/'], "n\n"), (["s/a@/a@/"], ""), (["s/[{]/ {/"], "")],
    ids=["given up", "saved as it was", "only moved"],
)
def test_an_abandoned_edit_changes_nothing(
    shop: Shell, monkeypatch: pytest.MonkeyPatch, commands: list[str], answer: str
) -> None:
    (job_id,) = shop.dead()
    before = shop.job(job_id)
    editing(monkeypatch, shop, *commands)
    said = shop("dead", "redrive", job_id, "--edit", stdin=answer)
    assert said.code == 1
    assert "nothing was redriven" in said.err
    assert shop.job(job_id) == before


def test_a_dry_run_of_an_edit_changes_nothing(shop: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    (job_id,) = shop.dead()
    before = shop.job(job_id)
    editing(monkeypatch, shop, "s/a@/b@/")
    said = shop.ok("dead", "redrive", job_id, "--edit", "--dry-run")
    assert said.out == "1 dead job would be redriven\n"
    assert shop.job(job_id) == before


def test_edit_is_refused_without_a_terminal(shell: Shell) -> None:
    (job_id,) = shell.dead()
    shell("dead", "redrive", job_id, "--edit").refused("--payload JSON", code=2)
    assert left(shell) == {str(job_id)}


@pytest.mark.parametrize(
    ("editor", "told"),
    [
        ("/nonexistent", "EDITOR=/nonexistent cannot be run: No such file or directory"),
        ("false", "EDITOR=false failed with exit code 1"),
        ("vi '", "EDITOR must be a command"),
        ("sh -c 'rm $0'", "cannot be read"),
    ],
)
def test_a_failing_editor_is_reported_with_a_remedy_and_changes_nothing(
    shop: Shell, monkeypatch: pytest.MonkeyPatch, editor: str, told: str
) -> None:
    monkeypatch.setattr(bulk_moves, "can_ask", lambda: True)
    monkeypatch.setenv("VISUAL", "")
    monkeypatch.setenv("EDITOR", editor)
    (job_id,) = shop.dead()
    before = shop.job(job_id)
    said = shop("dead", "redrive", job_id, "--edit")
    said.refused(told, "give the payload with --payload JSON")
    assert shop.job(job_id) == before


def test_without_an_editor_the_message_says_so(
    shop: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_moves, "can_ask", lambda: True)
    for name in ("VISUAL", "EDITOR"):
        monkeypatch.delenv(name, raising=False)
    (job_id,) = shop.dead()
    monkeypatch.setenv("PATH", str(shop.directory))
    shop("dead", "redrive", job_id, "--edit").refused("no editor is installed; set EDITOR")


def test_groups_that_leave_out_old_jobs_say_so(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.dead(count=3)
    whole = shell.ok("dead", "groups", "--json").json
    assert (whole["groups"][0]["count"], whole["searched_to"]) == (3, None)
    monkeypatch.setattr(SqliteStore.error_groups, "__kwdefaults__", {"kind": None, "most": 2})
    said = shell.ok("dead", "groups")
    assert "2+" in said.out
    assert "are not counted" in said.err
    assert shell.ok("dead", "groups", "--json").json["searched_to"] is not None
    assert shell.ok("stats", "--json").json["errors"][0]["capped"]
