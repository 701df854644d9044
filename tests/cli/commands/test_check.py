"""`windlass check` finds, before a deploy, what the new code does not serve of a store."""

from __future__ import annotations

import sqlite3
import sys
from base64 import b64encode
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from windlass.cli import app_target
from windlass.store.sqlite.connections.file import SCHEMA

if TYPE_CHECKING:
    from tests.cli.conftest import Shell

OLD = """
from windlass import Context, Secret, Windlass

app = Windlass()
app.limit("gpu", concurrency=8)


@app.job
async def resize(image: str) -> None: ...


@app.job(limit="gpu")
async def render(image: str) -> None: ...


@app.job
async def charge(card: Secret[str]) -> None: ...


@app.job
async def ship(ctx: Context, order: int) -> None:
    await ctx.step("pack", str, order)
    await ctx.sleep("1d")
    await ctx.step(f"label-{order}", str, order)


@app.cron("0 7 * * *")
async def daily() -> None: ...
"""
KEYS = {
    name: f"{name}:{b64encode(bytes([number]) * 32).decode()}"
    for number, name in enumerate(("k1", "k2"))
}


def check(shell: Shell, *args: object) -> list[dict[str, Any]]:
    said = shell("check", "shop:app", *args, "--json")
    report: dict[str, Any] = said.json
    assert report["ok"] is (not report["findings"]) is (said.code == 0)
    assert all(each["problem"] and each["remedy"] for each in report["findings"])
    found: list[dict[str, Any]] = report["findings"]
    return found


def loaded() -> Any:
    """Return the module of the shop, as a producer imports it."""
    sys.modules.pop("shop", None)
    app_target.load("shop:app")
    return sys.modules["shop"]


def deploy(shell: Shell, old: str, new: str, source: str = OLD) -> None:
    assert old in source
    shell.write("shop.py", source.replace(old, new))


@pytest.fixture
def old(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A store with jobs of an old release in it."""
    monkeypatch.setenv("WINDLASS_ENCRYPTION_KEYS", KEYS["k1"])
    shell.write("shop.py", OLD)
    shell.ok("migrate")
    return shell


def test_code_that_serves_everything_passes(old: Shell) -> None:
    old.enqueue("resize", payload=b'{"image": "a"}', count=3)
    old.enqueue("resize", payload=b'{"image": "b"}', due=timedelta(hours=1))
    old.start("resize")
    assert check(old) == []
    said = old.ok("check", "shop:app")
    assert "serves everything" in said.out
    assert "looked at all unfinished jobs (4)" in said.out


def test_a_payload_that_no_longer_decodes_is_found_with_its_field(old: Shell) -> None:
    soon, later = (
        old.enqueue("resize", payload=b'{"image": "a"}', due=due)[0]
        for due in (None, timedelta(days=1))
    )
    deploy(old, "resize(image: str)", "resize(image: str, width: int)")
    (found,) = check(old)
    assert (found["subject"], found["name"], found["jobs"]) == ("payload", "resize", 2)
    assert "width" in found["problem"]
    assert sorted(found["examples"]) == sorted([str(soon), str(later)])
    said = old("check", "shop:app")
    assert said.code == 1
    assert str(soon) in said.out
    assert "give a new parameter a default" in said.out


def test_a_kind_without_a_handler_is_found_and_an_alias_serves_it(old: Shell) -> None:
    old.enqueue("resize", payload=b'{"image": "a"}')
    deploy(old, "@app.job\nasync def resize", "@app.job\nasync def scale")
    (found,) = check(old)
    assert (found["subject"], found["name"], found["jobs"]) == ("kind", "resize", 1)
    assert "aliases=['resize']" in found["remedy"]
    deploy(old, "@app.job\nasync def resize", '@app.job(aliases=["resize"])\nasync def scale')
    assert check(old) == []


def test_no_built_in_kind_is_named_as_similar(old: Shell) -> None:
    old.enqueue("window.flow")
    (found,) = check(old)
    assert "windlass." not in found["problem"]


def test_finished_jobs_do_not_matter(old: Shell) -> None:
    old.dead("gone")
    assert check(old) == []


def test_a_queue_that_no_new_worker_serves_is_found(old: Shell) -> None:
    old.enqueue("resize", queue="images", payload=b'{"image": "a"}')
    (found,) = check(old, "--queues", "mail,default")
    assert (found["subject"], found["name"], found["jobs"]) == ("queue", "images", 1)
    assert [each["name"] for each in check(old, "--exclude", "images")] == ["images"]
    assert check(old, "--queues", "mail,images=3") == []


def test_a_secret_under_a_key_that_is_missing_is_found(
    old: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = loaded()
    shop.charge.enqueue(shop.Secret("4111"))
    shop.app.close()
    monkeypatch.setenv("WINDLASS_ENCRYPTION_KEYS", KEYS["k2"])
    (found,) = check(old)
    assert (found["subject"], found["name"], found["jobs"]) == ("key", "k1", 1)
    assert "WINDLASS_ENCRYPTION_KEYS" in found["remedy"]
    monkeypatch.setenv("WINDLASS_ENCRYPTION_KEYS", f"{KEYS['k2']},{KEYS['k1']}")
    assert check(old) == []
    monkeypatch.delenv("WINDLASS_ENCRYPTION_KEYS")
    assert {each["subject"] for each in check(old)} == {"key", "code"}


def shipped(old: Shell) -> None:
    """Let a job of the old release come to its sleep."""
    old.ok("enqueue", "ship", '{"order": 7}', "--app", "shop:app")
    old.ok("worker", "shop:app", "--burst")
    (job,) = old.ok("jobs", "list", "--json").json["jobs"]
    assert job["state"] == "scheduled"


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
        ('"pack"', '"wrap"', ["pack"]),
        ('"pack"', 'f"{order}-wrap"', ["pack"]),
        ('    await ctx.sleep("1d")\n', "", ["sleep-1"]),
        ('"pack"', "name", []),  # Computed: that may be the same name.
        ('"pack"', 'f"p{order}"', []),
        ("label-", "sticker-", []),  # Not recorded yet.
    ],
)
def test_a_recorded_step_that_no_code_calls_is_found(
    old: Shell, before: str, after: str, lost: list[str]
) -> None:
    shipped(old)
    deploy(old, before, after)
    found = check(old)
    assert [each["subject"] for each in found] == ["step"] * len(lost)
    for each, name in zip(found, lost, strict=True):
        assert repr(name) in each["problem"]
        assert "StepsChanged" in each["problem"]


def test_a_step_that_another_module_of_the_project_calls_is_known(old: Shell) -> None:
    shipped(old)
    old.write("packing.py", 'async def pack(ctx, order):\n    await ctx.step("pack", str, order)\n')
    deploy(
        old,
        'await ctx.step("pack", str, order)',
        "await packing.pack(ctx, order)",
        f"import packing\n{OLD}",
    )
    assert check(old) == []


def test_schedules_that_the_new_code_does_not_serve_are_found(old: Shell) -> None:
    old.ok("worker", "shop:app", "--burst")
    shop = loaded()
    shop.app.schedules.put("thumbnails", shop.resize.draft("a"), every="1h")
    shop.app.close()
    assert check(old) == []
    deploy(old, "async def daily", "async def nightly")
    (found,) = check(old)
    assert (found["subject"], found["name"]) == ("schedule", "daily")
    assert "windlass schedules remove daily" in found["remedy"]
    deploy(old, "resize(image: str)", "resize(picture: str)")
    (found,) = check(old)
    assert (found["subject"], found["name"]) == ("schedule", "thumbnails")
    deploy(old, "def resize", "def scale")
    (found,) = check(old)
    assert "'resize', which has no handler" in found["problem"]


def test_a_limit_that_an_operator_changed_and_the_new_code_lacks_is_found(old: Shell) -> None:
    old.ok("limits", "set", "gpu", "--concurrency", "2", "--app", "shop:app")
    assert check(old) == []
    old.write(
        "shop.py", OLD.replace('app.limit("gpu", concurrency=8)\n', "").replace('(limit="gpu")', "")
    )
    (found,) = check(old)
    assert (found["subject"], found["name"]) == ("limit", "gpu")
    old.write("shop.py", OLD.replace('app.limit("gpu", concurrency=8)\n', ""))
    assert {each["subject"] for each in check(old)} == {"limit", "code"}


def test_another_schema_is_found_and_nothing_else_is_looked_at(old: Shell) -> None:
    old.enqueue("gone")
    with closing(sqlite3.connect(old.file)) as file, file:
        file.execute(f"PRAGMA user_version = {SCHEMA - 1}")
    (found,) = check(old)
    assert (found["subject"], found["name"]) == ("schema", str(SCHEMA - 1))
    assert "windlass migrate" in found["remedy"]


def test_a_store_is_never_made(shell: Shell) -> None:
    shell.write("shop.py", OLD)
    shell("check", "shop:app", "--against", "sqlite:///other.db").refused("there is no store")
    assert not (shell.directory / "other.db").exists()
    shell("check", "shop:app", "--against", "memory://").refused("memory://")


def test_an_app_must_be_named(shell: Shell) -> None:
    shell("check").refused("name the app", code=2)


def test_a_sample_says_how_many_jobs_it_looked_at(old: Shell) -> None:
    old.enqueue("resize", payload=b'{"image": "a"}', count=60)
    report = old.ok("check", "shop:app", "--limit", "20", "--json").json
    assert (report["complete"], report["unfinished"]) == (False, 60)
    assert 10 <= report["looked_at"] <= 20
    assert "a sample of" in old.ok("check", "shop:app", "--limit", "20").out
    assert old.ok("check", "shop:app", "--all", "--json").json["looked_at"] == 60
