"""Every field of every `--json` document has its meaning in `windlass.core.document_fields`."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from typer.main import get_command

from tests.cli.conftest import Shell
from windlass.cli.root_command import cli
from windlass.core.document_fields import COMMANDS, EACH, ROUTES, SHAPES, chaos, field_of
from windlass.core.workers import WorkerPulse
from windlass.web.api.routes import ENDPOINTS

SHOP = """
from windlass import Breaker, Context, Windlass

app = Windlass()
app.limit("gpu", concurrency=8)


@app.job(slo="1ms")
async def fine(number: int) -> int:
    return number


@app.job(max_retries=1, breaker=Breaker("gateway", failures=1), limit="gpu")
def broken(number: int) -> None:
    raise ValueError(number)


@app.job
async def stepped(ctx: Context, number: int) -> None:
    ctx.progress(0.5, "half way")
    await ctx.step("first", lambda: number)
    await ctx.wait_for("parcel:1")


@app.cron("0 7 * * *")
async def daily() -> None: ...


def fill() -> dict[str, str]:
    flow = app.flow("order")
    flow.add(fine.draft(7), after=[flow.add(fine.draft(6))])
    return {
        "flow": str(flow.enqueue().id),
        "done": str(fine.enqueue(1).id),
        "stepped": str(stepped.enqueue(1).id),
        "later": str(fine.using(delay="1h").enqueue(2).id),
        "broken": str(broken.using(max_retries=0).enqueue(3).id),
        "retried": str(broken.enqueue(4).id),
    }
"""
CALLS = {
    "jobs list": [""],
    "jobs show": ["{done}", "{stepped}", "{broken}", "{later}", "{held}"],
    "jobs run": ["{broken} --here", "{stepped} --here --yes"],
    "why": ["{later}"],
    "dead list": [""],
    "dead groups": [""],
    "dead show": ["{dead}"],
    "queues list": [""],
    "schedules list": [""],
    "schedules show": ["daily"],
    "schedules next": ["daily"],
    "flows list": [""],
    "flows show": ["{flow}"],
    "events send": ["parcel:2"],
    "events show": ["parcel:1"],
    "limits list": [""],
    "breakers list": [""],
    "breakers open": ["gateway"],
    "breakers close": ["gateway"],
    "breakers auto": ["gateway"],
    "breakers probe": ["gateway"],
    "breakers show": ["gateway"],
    "stats": [""],
    "slo": [""],
    "workers": [""],
    "enqueue": ['fine {{"number":3}}'],
    "jobs cancel": ["{later}", "--kind fine --background --yes"],
    "bulk list": [""],
    "bulk show": ["{bulk}"],
    "bulk pause": ["{bulk}"],
    "bulk resume": ["{bulk}"],
    "bulk stop": ["{bulk}"],
    "jobs retry": ["{done}"],
    "dead redrive": ["--all --dry-run"],
    "dead purge": ["--all --yes"],
    "jobs purge": ["--state completed --yes"],
    "queues pause": ["default", "mail --wait"],
    "queues resume": ["default"],
    "schedules pause": ["daily"],
    "schedules resume": ["daily"],
    "schedules run": ["daily"],
    "schedules remove": ["daily --yes"],
    "flows cancel": ["{other}"],
    "limits set": ["gpu --concurrency 3"],
    "limits reset": ["gpu"],
    "audit list": [""],
    "restored park": ["--dry-run"],
    "restored list": [""],
    "restored release": ["--all --dry-run"],
    "restored cancel": ["--all --dry-run"],
    "restored missing": ["ids.txt"],
    "check": ["shop:app"],
    "deploys mark": ["v1.2.3"],
    "deploys list": [""],
    "keys new": [""],
    "keys rotate": ["--dry-run"],
    "migrate": ["", "--dry-run"],
    "doctor": [""],
}
"""Every command that writes a document, with arguments; those that only look come first."""
IN_FILES = {"chaos"}
"""Commands that write their document to a file: tests/chaos/test_report.py has its fields."""
RARE = {
    "bulk result": {"cancelled"},
    "connections": {"open", "in_use", "limit"},
    "finding": {"name"},
    "finding of a check": {"subject", "name", "problem", "remedy", "jobs", "examples"},
    "migration step": {"name", "sql"},
    "pause": {"kind", "key"},
    "sent event": {"id", "at", "payload"},
    "step": {"entry"},
    "suggestion": {"text", "replaces", "help"},
    "suggestions": {"suggestions"},
}
"""Fields that are there only in cases which other tests make."""
Seen = dict[str, set[str]]


def undocumented(document: Any, shape: str, seen: Seen) -> Iterator[str]:
    """Yield the fields of a document that its shape does not know; note those that it does."""
    for name, value in document.items():
        fields = SHAPES[shape]
        if EACH not in fields and name not in fields:
            yield f"{shape}: {name}"
            continue
        field = field_of(fields.get(name, fields.get(EACH, "")))
        seen[shape].add(EACH if EACH in fields else name)
        if field.shape:
            for each in value if isinstance(value, list) else [value]:
                if each is not None:
                    yield from undocumented(each, field.shape, seen)


def shape_of(command: str, document: dict[str, Any]) -> str:
    """Return the one of a command's shapes that fits a document best."""
    return max(COMMANDS[command], key=lambda shape: len(SHAPES[shape].keys() & document.keys()))


@pytest.fixture
def filled(shell: Shell) -> tuple[Shell, dict[str, str]]:
    """Return a shell whose store has a bit of everything, and the ids of that."""
    shell.write("shop.py", SHOP)
    shell.write("ids.txt", "0197f3a2-6c1e-7b60-8000-3f1d2c4b5a69")
    shell.ok("migrate")
    sys.path.insert(0, str(shell.directory))
    shop: Any = import_module("shop")
    try:
        ids: dict[str, str] = shop.fill()
        shop.app.run_worker(burst=True)
        flow = shop.app.flow("another")
        flow.add(shop.fine.draft(8))
        ids["other"] = str(flow.enqueue().id)
        shop.app.close()
    finally:
        sys.path.remove(str(shell.directory))
    ids["dead"] = str(shell.dead()[0])
    (held,) = shell.enqueue("resize")
    shell.start("resize")
    shell.register("w2", kinds=("fine",), threads=1, pools={"fine": "threads"})
    shell.beat("w2", WorkerPulse(running=1, in_threads=1, slots=4))
    return shell, ids | {"held": str(held)}


def test_every_field_of_every_document_is_documented(
    filled: tuple[Shell, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    shell, names = filled
    monkeypatch.setenv("WINDLASS_APP", "shop:app")
    monkeypatch.setenv("WINDLASS_ENCRYPTION_KEYS", shell.ok("keys", "new").out.strip())
    seen: Seen = defaultdict(set)
    found: list[str] = []
    for command, calls in CALLS.items():
        if command == "restored park":  # It refuses to park beside live workers.
            shell.retire("w1")
            shell.retire("w2")
        for call in calls:
            said = shell(*command.split(), *call.format(**names).split(), "--json")
            assert said.out.startswith("{"), (command, call, said.err)
            document = json.loads(said.out)
            if "verb" in document:
                names["bulk"] = document["id"]
            found += undocumented(document, shape_of(command, document), seen)
    assert found == []
    unseen = {
        shape: missing
        for shape, fields in SHAPES.items()
        if shape not in chaos.SHAPES
        and (missing := fields.keys() - seen[shape] - RARE.get(shape, set()))
    }
    assert unseen == {}


def test_every_command_with_a_document_is_known_and_called() -> None:
    def walk(command: Any, path: list[str]) -> Iterator[tuple[str, Any]]:
        if not hasattr(command, "list_commands"):
            yield " ".join(path), command
            return
        for name in command.list_commands(None):
            yield from walk(command.get_command(None, name), [*path, name])

    writing = {
        name
        for name, command in walk(get_command(cli), [])
        if any("--json" in each.opts for each in command.params)
    }
    assert set(COMMANDS) == writing
    assert set(CALLS) == writing - IN_FILES


def test_every_route_of_the_api_has_its_shape_and_keys() -> None:
    assert {each.path for each in ENDPOINTS} == set(ROUTES)
    for endpoint in ENDPOINTS:
        assert set(endpoint.keys) <= SHAPES[ROUTES[endpoint.path]].keys(), endpoint.path


def test_a_field_that_is_not_documented_is_found() -> None:
    document = {"jobs": [{"id": "1", "colour": "red"}], "after": None}
    assert list(undocumented(document, "page of jobs", defaultdict(set))) == ["job summary: colour"]
