"""The wheel alone is enough: what it imports it declares, and each extra is enough by itself."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.wheel.environments import ROOT, Environment

# What downloads and installs takes as long as it takes.
pytestmark = pytest.mark.timeout(600)
INSIDE = str(Path(__file__).with_name("inside.py"))
NOBODY = "0197f3a2-6c1e-7b60-8000-3f1d2c4b5a69"
NEEDS_PSYCOPG = ("windlass.chaos.grounds.postgres", "windlass.store.postgres")
NEEDS_TEXTUAL = tuple(f"windlass.cli.top.{name}" for name in ("app", "screens", "signals"))
NEEDS_STARLETTE = ("windlass.web",)
NEEDS_HIREDIS = ("windlass.chaos.grounds.redis", "windlass.store.redis")
NEEDS_DJANGO = ("windlass.contrib.django",)
NEEDS_PROJECT = tuple(
    f"windlass.contrib.django.{name}" for name in ("admin", "models", "page", "project", "testing")
)
"""The packages that need an extra, or a project, when they are imported. All others do not."""
NEEDS_FRAMEWORK = {
    "windlass.contrib.fastapi": {"fastapi"},
    "windlass.contrib.flask": {"flask"},
    "windlass.contrib.litestar": {"litestar"},
    "windlass.contrib.sentry": {"sentry"},
    "windlass.contrib.starlette": {"fastapi", "starlette", "web"},
    "windlass.testing.pytest_plugin": set[str](),
}
"""Modules for other packages, and the extras with which they can be imported."""


class Call(NamedTuple):
    """How a command is called, and its exit codes: on an empty store, and on one that is filled."""

    args: str = ""
    empty: int = 0
    filled: int = 0


CALLS = {
    "demo": Call("--jobs 20"),
    "chaos": Call("--time 2s --jobs 30 --faults 1"),
    "new": Call("fresh --store postgres --with web,fastapi"),
    "jobs list": Call(),
    "jobs show": Call("{done}", empty=1),
    "jobs run": Call("{dead} --here", empty=1, filled=1),
    "why": Call("{later}", empty=1),
    "dead list": Call(),
    "dead groups": Call(),
    "dead show": Call("{dead}", empty=1),
    "queues list": Call(),
    "schedules list": Call(),
    "schedules show": Call("daily", empty=1),
    "schedules next": Call("daily", empty=1),
    "flows list": Call(),
    "flows show": Call("{flow}", empty=1),
    "events show": Call("parcel:1"),
    "limits list": Call(),
    "breakers list": Call(),
    "breakers show": Call("gateway", empty=1),
    "stats": Call(),
    "top": Call("--once"),
    "web": Call("--host 0.0.0.0", empty=1, filled=1),
    "slo": Call(),
    "workers": Call(),
    "audit list": Call(),
    "bulk list": Call(),
    "bulk show": Call("0197f3a2", empty=1, filled=1),
    "enqueue": Call('fine {{"number":3}}'),
    "jobs cancel": Call("{later}", empty=1),
    "jobs retry": Call("{dead}", empty=1),
    "dead redrive": Call("--all"),
    "dead purge": Call("--all --yes"),
    "jobs purge": Call("--state completed --yes"),
    "queues pause": Call("default"),
    "queues resume": Call("default"),
    "schedules pause": Call("daily", empty=1),
    "schedules resume": Call("daily", empty=1),
    "schedules run": Call("daily", empty=1),
    "schedules remove": Call("daily --yes", empty=1),
    "flows cancel": Call("{flow}", empty=1, filled=1),
    "events send": Call("parcel:1"),
    "limits set": Call("gpu --concurrency 3"),
    "limits reset": Call("gpu"),
    "breakers open": Call("gateway", empty=1),
    "breakers close": Call("gateway", empty=1),
    "breakers auto": Call("gateway", empty=1),
    "breakers probe": Call("gateway", empty=1),
    "bulk pause": Call("0197f3a2", empty=1, filled=1),
    "bulk resume": Call("0197f3a2", empty=1, filled=1),
    "bulk stop": Call("0197f3a2", empty=1, filled=1),
    "check": Call("shop:app"),
    "deploys mark": Call("v1.2.3"),
    "deploys list": Call(),
    "restored park": Call("--yes"),
    "restored list": Call(),
    "restored missing": Call("/dev/null"),
    "restored cancel": Call("--all --dry-run"),
    "restored release": Call("--all --yes"),
    "keys new": Call(),
    "keys rotate": Call("", empty=1, filled=1),
    "migrate": Call(),
    "doctor": Call("", empty=1, filled=1),
    "worker": Call("shop:app --burst"),
}
"""Every command once, those that only look first, since the others change what there is."""


def inside(
    environment: Environment, what: str, cwd: Path, env: dict[str, str], stdin: object = None
) -> Any:
    done = environment.run("python", INSIDE, what, cwd=cwd, env=env, stdin=json.dumps(stdin))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check_calls(
    environment: Environment,
    cwd: Path,
    env: dict[str, str],
    names: dict[str, str],
    wanted: dict[str, int],
) -> None:
    """Call every command that is wanted, and compare its exit code."""
    asked = [[*name.split(), *CALLS[name].args.format(**names).split()] for name in wanted]
    said = dict(zip(wanted, inside(environment, "run", cwd, env, asked), strict=True))
    wrong = {name: each for name, each in said.items() if each[0] != wanted[name]}
    assert not wrong
    # At the beginning of a line: the log of a worker has those of jobs that fail in a field.
    assert not {name: err for name, (_, _, err) in said.items() if "\nTraceback" in f"\n{err}"}


def readme(heading: str, language: str) -> list[str]:
    """Return the blocks of a language in a section of the README."""
    section = (ROOT / "README.md").read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)


def test_the_first_job_of_the_readme_runs(
    environment: Environment, tmp_path: Path, variables: dict[str, str]
) -> None:
    app, producer, result = readme("A first job", "python")
    started, *looks = re.findall(
        r"^\$ windlass (.*)$", "".join(readme("A first job", "console")), re.MULTILINE
    )
    (tmp_path / "app.py").write_text(app)
    (tmp_path / "producer.py").write_text(producer + result)
    assert environment.run("windlass", "migrate", cwd=tmp_path, env=variables).returncode == 0
    worker = subprocess.Popen(
        [environment.bin / "windlass", *started.split()],
        cwd=tmp_path,
        env=environment.variables() | variables,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        done = environment.run("python", "producer.py", cwd=tmp_path, env=variables)
    finally:
        worker.send_signal(signal.SIGTERM)
        _, log = worker.communicate(timeout=60)
    assert done.returncode == 0, done.stderr + log
    assert worker.returncode == 0, log
    for command in looks:
        said = environment.run("windlass", *command.split(), cwd=tmp_path, env=variables)
        assert said.returncode == 0, said.stdout + said.stderr


@pytest.fixture(scope="session")
def looked(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return what is there: modules that cannot be imported, commands, and their help."""
    return inside(environment, "look", tmp_path_factory.mktemp("looked"), {})


def test_every_module_is_importable_but_those_of_other_extras(
    environment: Environment, looked: Any
) -> None:
    broken = looked["broken"]
    psycopg = () if environment.has_psycopg else NEEDS_PSYCOPG
    textual = () if environment.wanted.extra == "top" else NEEDS_TEXTUAL
    starlette = () if environment.wanted.extra == "web" else NEEDS_STARLETTE
    hiredis = () if environment.has_hiredis else NEEDS_HIREDIS
    django = NEEDS_PROJECT if environment.wanted.extra == "django" else NEEDS_DJANGO
    frameworks = [
        (name,)
        for name, extras in NEEDS_FRAMEWORK.items()
        if environment.wanted.extra not in extras
    ]
    needing = (*psycopg, *textual, *starlette, *hiredis, *django, *sum(frameworks, ()))
    assert {name for name in broken if not name.startswith(needing)} == set(), broken
    for missing in filter(None, (psycopg, textual, starlette, hiredis, django, *frameworks)):
        assert any(name.startswith(missing) for name in broken), f"{missing} need nothing"


def test_every_command_is_called_here(looked: Any) -> None:
    assert sorted(CALLS) == sorted(looked["commands"])


def test_every_command_and_group_has_help(
    environment: Environment, looked: Any, tmp_path: Path
) -> None:
    groups = {name.partition(" ")[0] for name in CALLS}
    assert set(looked["help"]) == groups | set(CALLS)
    for name, (code, out, err) in looked["help"].items():
        assert (code, err) == (0, ""), name
        assert f"windlass {name}" in out
    whole = environment.run("windlass", "--help", cwd=tmp_path, env={})
    assert (whole.returncode, whole.stderr) == (0, "")


def test_every_command_does_its_work_on_an_empty_store(
    environment: Environment, tmp_path: Path, variables: dict[str, str]
) -> None:
    if environment.wanted.extra not in ("", "chaos"):
        pytest.skip("an extra only adds packages: the other commands are called on a filled store")
    (tmp_path / "shop.py").write_text(Path(__file__).with_name("shop.py").read_text())
    migrated = environment.run("windlass", "migrate", cwd=tmp_path, env=variables)
    assert migrated.returncode == 0, migrated.stderr
    names = dict.fromkeys(("done", "dead", "later", "flow"), NOBODY)
    wanted = {name: call.empty for name, call in CALLS.items()}
    check_calls(environment, tmp_path, variables, names, wanted)


def test_every_command_does_its_work_on_a_filled_store(
    environment: Environment, tmp_path: Path, variables: dict[str, str]
) -> None:
    (tmp_path / "shop.py").write_text(Path(__file__).with_name("shop.py").read_text())
    for command in (["windlass", "migrate"], ["python", "shop.py"]):
        done = environment.run(*command, cwd=tmp_path, env=variables)
        assert done.returncode == 0, done.stderr
    ids = json.loads(done.stdout)
    names = ids | {"dead": ids["dead"][0], "later": ids["later"][0]}
    served = environment.run(
        "windlass", "worker", "shop:app", "--burst", cwd=tmp_path, env=variables
    )
    assert served.returncode == 0, served.stderr
    # These have a store of their own, and were called on the empty one.
    wanted = {name: call.filled for name, call in CALLS.items() if name not in ("demo", "chaos")}
    check_calls(environment, tmp_path, variables | {"WINDLASS_APP": "shop:app"}, names, wanted)


def test_a_url_of_postgresql_without_psycopg_names_the_extra(
    environment: Environment, tmp_path: Path
) -> None:
    if environment.has_psycopg:
        pytest.skip("psycopg is installed here")
    env = {"WINDLASS_URL": "postgresql://nobody@localhost/nothing"}
    said = environment.run("windlass", "queues", "list", cwd=tmp_path, env=env)
    assert said.returncode == 1
    assert "pip install 'windlass[postgres]'" in said.stderr
    assert "Traceback" not in said.stderr


def test_a_url_of_redis_without_hiredis_names_the_extra(
    environment: Environment, tmp_path: Path
) -> None:
    if environment.has_hiredis:
        pytest.skip("hiredis is installed here")
    env = {"REDIS_URL": "redis://localhost"}
    said = environment.run("windlass", "queues", "list", cwd=tmp_path, env=env)
    assert said.returncode == 1
    assert "pip install 'windlass[redis]'" in said.stderr
    assert "Traceback" not in said.stderr


MESSAGES = """
import sys
from typing import Annotated
from windlass import Protobuf, Windlass

assert not any(name.startswith("google.protobuf") for name in sys.modules)
from google.protobuf.timestamp_pb2 import Timestamp

app = Windlass("memory://")


@app.job
async def next_second(at: Timestamp) -> Annotated[Timestamp, Protobuf(binary=True)]:
    return Timestamp(seconds=at.seconds + 1)


handle = next_second.enqueue(Timestamp(seconds=5))
app.run_worker(burst=True)
assert handle.result() == Timestamp(seconds=6)
"""


def test_the_extra_is_enough_for_protobuf_messages(
    environment: Environment, tmp_path: Path, variables: dict[str, str]
) -> None:
    if environment.wanted.extra != "protobuf":
        pytest.skip("protobuf is not installed here")
    done = environment.run("python", "-c", MESSAGES, cwd=tmp_path, env=variables)
    assert done.returncode == 0, done.stderr
