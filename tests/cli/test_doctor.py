"""`windlass migrate` and `windlass doctor`: what is there, what is wrong, and how to mend it."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from windlass.store.sqlite.file import MIGRATIONS, SCHEMA

if TYPE_CHECKING:
    from tests.cli.conftest import Shell


def problems(shell: Shell, *args: object) -> list[dict[str, str]]:
    said = shell("doctor", *args, "--json")
    report: dict[str, Any] = said.json
    assert report["ok"] is (not report["problems"]) is (said.code == 0)
    assert all(each["problem"] and each["remedy"] for each in report["problems"] + report["notes"])
    found: list[dict[str, str]] = report["problems"]
    return found


def test_migrate_makes_the_store_once(shell: Shell) -> None:
    applied = "".join(f"applied {step.number:04}_{step.name}\n" for step in MIGRATIONS)
    assert shell.ok("migrate").out == f"{applied}{shell.file} is up to date\n"
    assert shell.ok("migrate").out == f"{shell.file} is up to date\n"
    assert shell.ok("migrate", "--json").json == {"store": str(shell.file), "applied": []}
    assert shell.file.stat().st_mode & 0o777 == 0o600


def test_memory_has_nothing_to_migrate(shell: Shell) -> None:
    assert "nothing to migrate" in shell.ok("migrate", "--url", "memory://").out


def test_a_directory_that_is_not_there_is_told(shell: Shell) -> None:
    shell("migrate", "--url", "sqlite:///missing/jobs.db").refused("does not exist; create it")
    (found,) = problems(shell, "--url", "sqlite:///missing/jobs.db")
    assert f"mkdir -p {shell.directory / 'missing'}" in found["problem"]


def test_where_all_is_well_the_exit_code_is_0(shop: Shell) -> None:
    said = shop.ok("doctor", "shop:app")
    assert "all is well" in said.out
    assert str(shop.file) in said.out
    assert problems(shop, "shop:app") == []


def test_doctor_tells_the_absolute_path_that_a_relative_one_became(shop: Shell) -> None:
    facts = shop.ok("doctor", "--url", "sqlite:///windlass.db", "--json").json["facts"]
    assert facts["store"] == str(shop.file)
    assert facts["schema"].startswith(f"{SCHEMA} ")
    assert facts["workers"] == "0 alive"


def test_each_setting_is_told_with_its_value_and_where_it_came_from(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKER_CONCURRENCY", "5")
    shell.write(".env", "WINDLASS_LEASE=20s\n")
    shell.write("windlass.toml", "max_retries = 9\n")
    shell.write("shop.py", "from windlass import Windlass\napp = Windlass('sqlite:///own.db')\n")
    settings = shell("doctor", "shop:app", "--json").json["settings"]
    assert settings["slots"] == {"value": "5", "source": "WORKER_CONCURRENCY"}
    assert settings["lease"] == {"value": "20s", "source": ".env: WINDLASS_LEASE"}
    assert settings["max_retries"] == {"value": "9", "source": "windlass.toml: max_retries"}
    assert settings["url"] == {"value": "sqlite:///own.db", "source": "Windlass(url=...)"}
    assert settings["timeout"]["source"] == "default"
    settings = shell("doctor", "shop:app", "--url", "memory://", "--json").json["settings"]
    assert settings["url"] == {"value": "memory://", "source": "--url"}


def test_doctor_shows_no_password(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_URL", "postgresql://ann:S3cret@host/db")
    for args in ((), ("--json",)):
        said = shell("doctor", *args)
        assert said.code == 1
        assert "S3cret" not in said.out + said.err


def test_to_examine_is_not_to_create(shell: Shell) -> None:
    said = shell.ok("doctor", "--json")
    assert f"there is no store at {shell.file} yet" in said.json["notes"][0]["problem"]
    assert not shell.file.exists()


def test_to_examine_is_not_to_migrate(shell: Shell) -> None:
    sqlite3.connect(shell.file).close()
    shell.file.touch(0o600)
    (found,) = problems(shell)
    assert found["remedy"] == "windlass migrate"
    assert shell.file.stat().st_size == 0


def test_a_schema_from_the_future_is_told(shop: Shell) -> None:
    db = sqlite3.connect(shop.file)
    db.execute("PRAGMA user_version = 99")
    db.close()
    (found,) = problems(shop)
    assert "newer release" in found["problem"]


def test_a_file_that_others_can_read_is_told_with_its_remedy(shop: Shell) -> None:
    shop.file.chmod(0o644)
    (found,) = problems(shop)
    assert found["remedy"] == f"chmod 600 {shop.file}"


def test_a_file_that_is_no_database_is_told(shell: Shell) -> None:
    shell.write("windlass.db", "not a database, whatever its name says" * 10)
    (found,) = problems(shell)
    assert "is not an SQLite database" in found["problem"]


def test_variables_that_do_nothing_are_told(shop: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://h")
    monkeypatch.setenv("WINDLASS_SLOT", "5")
    monkeypatch.setenv("WINDLASS_APP", "shop:app")
    (found,) = problems(shop)
    assert "did you mean WINDLASS_SLOTS?" in found["problem"]
    notes = shop("doctor", "--json").json["notes"]
    assert any("REDIS_URL is set, and not used by this release" in n["problem"] for n in notes)


def test_jobs_that_wait_while_nobody_works_are_a_problem(shell: Shell) -> None:
    shell.enqueue()
    (found,) = problems(shell)
    assert "no worker is alive" in found["problem"]
    assert found["remedy"].startswith("windlass worker ")


def test_jobs_that_no_live_worker_serves_are_a_problem(shell: Shell) -> None:
    shell.start("send_email")
    shell.enqueue("send_email")
    assert problems(shell) == []
    shell.enqueue("unknown", queue="slow")
    (found,) = problems(shell)
    assert "kind unknown are pending in queue slow" in found["problem"]


def test_a_paused_queue_is_a_note_and_what_waits_in_it_is_no_problem(shell: Shell) -> None:
    shell.enqueue(queue="mail")
    shell.ok("queues", "pause", "mail")
    assert problems(shell) == []
    notes = shell.ok("doctor", "--json").json["notes"]
    assert {"problem": "queue mail is paused", "remedy": "windlass queues resume mail"} in notes


def test_an_app_without_handlers_is_a_problem(shell: Shell) -> None:
    shell.write("shop.py", "from windlass import Windlass\napp = Windlass()\n")
    (found,) = problems(shell, "shop:app")
    assert "no handler is registered in shop:app" in found["problem"]


@pytest.mark.parametrize(
    ("files", "args"),
    [
        ({"windlass.toml": "slots = 'many'"}, ()),
        ({"windlass.toml": "= broken"}, ()),
        ({}, ("missing:app",)),
        ({"shop.py": "1 / 0"}, ("shop:app",)),
        (
            {"shop.py": "from windlass import Windlass\napp = Windlass(imports=['missing'])"},
            ("shop:app",),
        ),
    ],
)
def test_what_cannot_even_be_loaded_is_a_problem_and_still_one_document(
    shell: Shell, files: dict[str, str], args: tuple[str, ...]
) -> None:
    for name, text in files.items():
        shell.write(name, text)
    assert len(problems(shell, *args)) == 1
    said = shell("doctor", *args)
    assert said.code == 1
    assert "wrong" in said.out


def test_memory_is_a_note(shell: Shell) -> None:
    said = shell.ok("doctor", "--url", "memory://")
    assert "app.run_worker()" in said.out
