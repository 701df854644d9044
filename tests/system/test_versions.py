"""The versions that the docs tell are those that the tests ran on."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.support.postgres.server import FAST, Server, versions
from tests.system.bouncer import PgBouncer
from tests.system.debian import Debian, program

ROOT = Path(__file__).parents[2]
PAGES = ("docs/postgresql.md", "CHANGELOG.md")


def told_in(page: str, name: str) -> str:
    """Return the versions that a page tells first after a name: `15, 16 and 18`."""
    told = re.search(rf"{name} (\d[\d.]*\d(?:(?:, | and )\d+)*)", (ROOT / page).read_text())
    assert told, f"{page} tells no version of {name}"
    return told[1]


def test_the_docs_tell_the_versions_of_the_servers(debian: Debian) -> None:
    ran = [debian.major()]
    for version in versions():
        with Server(version=version, settings=FAST) as server:
            ran.append(server.major())
    for page in PAGES:
        told = re.findall(r"\d+", told_in(page, "PostgreSQL"))
        assert told == [str(each) for each in ran], page


def test_the_docs_tell_the_version_of_the_pooler(bouncer: PgBouncer) -> None:
    (shown,) = bouncer.show("VERSION")
    told = told_in("docs/postgresql.md", "PgBouncer")
    assert re.findall(r"PgBouncer (\d+\.\d+)", str(shown["version"])) == [told]


def test_the_page_of_failovers_tells_the_version_of_pgpool() -> None:
    shown = subprocess.run(
        [program("pgpool"), "--version"], check=True, capture_output=True, text=True
    )
    told = told_in("docs/failover.md", "pgpool-II")
    assert re.findall(r"version (\d+\.\d+)", shown.stdout + shown.stderr) == [told]
