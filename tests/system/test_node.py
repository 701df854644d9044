"""Jobs from Node.js: the block in the docs runs, with the npm package `pg`, and a worker runs them.

Needs node and npm, and the registry that npm is set up for.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.docs.test_docs import ON_POSTGRES, blocks_of
from tests.support.app_on_store import in_state, serving
from tests.system.debian import program
from windlass import State, Windlass

PG = "pg@8"
CALL = """
import pg from "pg";
const client = new pg.Client({ connectionString: process.env.WINDLASS_URL });
await client.connect();
const answers = [];
for (const [statement, job] of JSON.parse(process.argv[2])) {
    try {
        const { rows } = await client.query(statement, job === null ? [] : [job]);
        answers.push(rows[0]?.id ?? null);
    } catch (error) {
        answers.push([error.message, error.hint]);
    }
}
await client.end();
console.log(JSON.stringify(answers));
"""
ENQUEUE = "SELECT windlass.enqueue($1) AS id"


@pytest.fixture(scope="session")
def node_modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a directory in which `pg` is installed."""
    directory = tmp_path_factory.mktemp("node")
    (directory / "package.json").write_text('{"private": true, "type": "module"}')
    command = [str(program("npm")), "install", "--silent", "--no-audit", "--no-fund", PG]
    done = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=100, check=False
    )
    if done.returncode:
        pytest.fail(
            f"npm cannot install {PG}: {done.stderr[-300:]}; "
            "name a registry that has it: npm config set registry https://..."
        )
    return directory


def node(directory: Path, script: str, url: str, *args: str) -> str:
    """Run a program, and return what it printed."""
    (directory / "program.js").write_text(script)
    done = subprocess.run(
        [program("node"), "program.js", *args],
        cwd=directory,
        env={**os.environ, "WINDLASS_URL": url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def ask(directory: Path, url: str, *questions: tuple[str, Any]) -> list[Any]:
    """Send statements on one connection, each with its job, and return ids and errors."""
    answers: list[Any] = json.loads(node(directory, CALL, url, json.dumps(questions)))
    return answers


def test_the_block_in_the_docs_enqueues_a_job_that_runs(
    node_modules: Path, migrated_url: str
) -> None:
    (block,) = [each for each in blocks_of(ON_POSTGRES) if each.language == "javascript"]
    with psycopg.connect(migrated_url) as db:
        db.execute("CREATE TABLE users (email text)")
    job_id = node(node_modules, block.text, migrated_url)
    app = Windlass(migrated_url)

    @app.job
    async def send_email(to: str) -> str:
        return f"sent to {to}"

    async def main() -> None:
        async with serving(app):
            job = await in_state(app.handle(job_id), State.COMPLETED)
            assert job.result == b'"sent to gil@example.org"'
        await app.aclose()

    asyncio.run(main())


def test_a_rollback_leaves_nothing_and_unique_keys_are_honoured(
    node_modules: Path, migrated_url: str
) -> None:
    job = {"kind": "work", "unique": "once", "priority": 3, "delay": "1 hour"}
    _, lost, _, first, second = ask(
        node_modules,
        migrated_url,
        ("BEGIN", None),
        (ENQUEUE, job),
        ("ROLLBACK", None),
        (ENQUEUE, job),
        (ENQUEUE, job),
    )
    assert first == second != lost
    with psycopg.connect(migrated_url) as db:
        rows = db.execute("SELECT id::text, priority, state FROM windlass.jobs").fetchall()
    assert rows == [(first, 3, "scheduled")]


def test_errors_come_with_a_hint(node_modules: Path, migrated_url: str) -> None:
    answers = ask(
        node_modules,
        migrated_url,
        (ENQUEUE, {"payload": {}}),
        (ENQUEUE, {"kind": "work", "wait": 1}),
        (ENQUEUE, {"kind": "work", "payload": [1]}),
    )
    assert [message for message, _ in answers] == [
        "kind must be the name of a handler, got nothing",
        "a job has no field 'wait'",
        "payload must be an object, got a JSON array",
    ]
    assert all(hint for _, hint in answers)
