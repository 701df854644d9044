"""Handlers run inside an app context of Flask's, which ends where and when the handler does."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from flask import Flask, current_app, g, has_app_context
from flask.cli import ScriptInfo

from windlass import ConfigError, State, Windlass
from windlass.contrib.flask import FlaskWindlass, init_app, windlass_app
from windlass.contrib.flask.command import prepared
from windlass.testing import travel

PROGRAM = """
from flask import Flask, current_app
from windlass import Windlass
from windlass.contrib.flask import init_app

jobs = Windlass(max_retries=0)

@jobs.job
def named() -> str:
    return current_app.name

@jobs.job(isolate=True)
def apart() -> str:
    return current_app.name

def create_app():
    app = Flask("shop")
    app.config["WINDLASS_URL"] = "sqlite:///shop.db"
    init_app(app, jobs)
    return app
"""


@pytest.fixture
def flask_app() -> Flask:
    return Flask("shop")


@pytest.fixture
def jobs(flask_app: Flask) -> Windlass:
    app = Windlass("memory://", max_retries=0)
    init_app(flask_app, app)
    return app


def test_a_def_handler_has_a_context_that_is_torn_down_in_its_thread(
    jobs: Windlass, flask_app: Flask
) -> None:
    seen: list[Any] = []

    @flask_app.teardown_appcontext
    def tear_down(error: BaseException | None) -> None:
        seen.append((g.opened, threading.get_ident(), error))

    @jobs.job
    def work(fail: bool) -> int:
        g.opened = f"by {current_app.name}"
        if fail:
            raise LookupError("no")
        return threading.get_ident()

    with travel(jobs) as t:
        good, bad = work.enqueue(False), work.enqueue(True)
        t.run_due()
        thread = good.result()
        assert bad.state() is State.DEAD
    (_, *first), (_, *second) = seen
    assert [each[0] for each in seen] == ["by shop", "by shop"]
    assert first == [thread, None]
    assert isinstance(second[1], LookupError)


def test_an_async_handler_has_a_context_and_two_at_once_do_not_share_it(
    jobs: Windlass, flask_app: Flask
) -> None:
    torn: list[str] = []
    both = asyncio.Barrier(2)

    @flask_app.teardown_appcontext
    def tear_down(error: BaseException | None) -> None:
        torn.append(g.name)

    @jobs.job
    async def work(name: str) -> str:
        g.name = name
        await both.wait()
        return f"{current_app.name} {g.name}"

    with travel(jobs) as t:
        handles = [work.enqueue("ada"), work.enqueue("bob")]
        t.run_due()
        assert [each.result() for each in handles] == ["shop ada", "shop bob"]
    assert sorted(torn) == ["ada", "bob"]
    assert not has_app_context()


def test_the_settings_of_flask_override_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_CONCURRENCY", "3")
    flask_app, app = Flask("shop"), Windlass("memory://")
    flask_app.config.update(WINDLASS_CONCURRENCY=7, WINDLASS_URL="sqlite:///jobs.db")
    FlaskWindlass(app, flask_app)
    assert (app.settings.concurrency.least, app.settings.url) == (7, "sqlite:///jobs.db")


def test_an_unknown_setting_is_named() -> None:
    flask_app = Flask("shop")
    flask_app.config["WINDLASS_CONCURENCY"] = 7
    with pytest.raises(ConfigError, match="no setting WINDLASS_CONCURENCY"):
        init_app(flask_app, Windlass("memory://"))


def test_a_view_finds_the_app_and_one_without_it_gets_the_remedy(
    jobs: Windlass, flask_app: Flask
) -> None:
    with flask_app.app_context():
        assert windlass_app() is jobs
    with Flask("bare").app_context(), pytest.raises(ConfigError, match="'bare' has no Windlass"):
        windlass_app()


def test_a_factory_that_is_called_again_leaves_one_context_of_the_last_application() -> None:
    background, torn = FlaskWindlass(Windlass("memory://")), []

    @background.app.job
    def work() -> str:
        return current_app.name

    for name in ("first", "second"):
        made = Flask(name)
        made.teardown_appcontext(lambda _: torn.append(current_app.name))
        background.init_app(made)
    with travel(background.app) as t:
        handle = work.enqueue()
        t.run_due()
        assert handle.result() == "second"
    assert torn == ["second"]


def test_the_command_names_the_application_to_other_processes() -> None:
    command, environment = prepared(ScriptInfo("shop:create_app"), ("jobs", "list", "--json"))
    assert command[-5:] == ["-m", "windlass", "jobs", "list", "--json"]
    assert environment["FLASK_APP"] == "shop:create_app"
    assert environment["WINDLASS_APP"] == "windlass.contrib.flask.project:jobs"


def flask(directory: Path, *arguments: str, app: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "flask", "--app", app, *arguments],
        cwd=directory,
        env={**os.environ, "WINDLASS_METRICS_PORT": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_the_command_runs_a_worker_whose_handlers_have_the_application(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    enqueue = "from program import *; create_app(); named.enqueue(); apart.enqueue(); jobs.close()"
    subprocess.run([sys.executable, "-c", enqueue], cwd=tmp_path, check=True, timeout=60)
    done = flask(tmp_path, "windlass", "worker", "--burst", app="program:create_app")
    assert done.returncode == 0, done.stderr
    listed = flask(tmp_path, "windlass", "jobs", "list", "--json", app="program:create_app")
    assert listed.stdout.count('"completed"') == 2, listed.stdout + done.stderr


def test_an_application_that_cannot_be_loaded_is_reported_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("from flask import Flask\napp = Flask('bare')\n")
    done = flask(tmp_path, "windlass", "worker", app="program")
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
