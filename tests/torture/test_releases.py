"""Every release's workers and producers on the next release's schema, and back, under load.

For each tag, its own sources run against a real server, together with those of the release after
it; today's code follows the last tag. Until there is a tag, that is one upgrade: from today's code
to a next release that is made up (tests/support/releases.py). A ledger of the handlers decides.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.postgres_workers import PostgresYard
from tests.support.released import ROOT, Release, upgrades
from tests.support.worker_processes import PATIENCE, PROGRAMS, WorkerProcess, until

MORE = 100
"""Jobs that are done in each part of an upgrade."""
FINISHED = "SELECT count(*) FROM finished_jobs WHERE state = 'completed'"
ELSEWHERE = "SELECT (SELECT count(*) FROM jobs) + (SELECT count(*) FROM dead_jobs)"
MIGRATE = """
import os
if os.environ.get("RELEASE_IS_NEXT"):
    from tests.support.releases import become_next
    become_next()
from windlass.cli import main
main()
"""


class Upgrade:
    """A yard in which processes of two releases work on one database."""

    def __init__(self, yard: PostgresYard, directory: Path) -> None:
        self.yard = yard
        self._directory = directory
        self._producers: list[subprocess.Popen[bytes]] = []

    def migrate(self, release: Release) -> None:
        process, output = self._run(release, "-c", MIGRATE, "migrate")
        assert process.wait(PATIENCE) == 0, output.read_text()

    def fleet(self, release: Release) -> WorkerProcess:
        process, output = self._run(
            release,
            *("-m", "windlass", "worker", "release_shop:app", "--processes=2"),
            *("--concurrency=5", "--lease=5s", "--poll-interval=0.1s", "--log-format=json"),
        )
        fleet = WorkerProcess(process, output, output)
        fleet.crew(2)
        return fleet

    def produce(self, release: Release) -> None:
        path = self._directory / f"acknowledged-{len(self._producers)}"
        process, _ = self._run(release, str(PROGRAMS / "release_shop.py"), str(path))
        self._producers.append(process)

    def more(self, what: str) -> None:
        """Wait until many more jobs are done, with whoever works at present."""
        enough = self.yard.value(FINISHED) + MORE
        until(lambda: self.yard.value(FINISHED) >= enough, f"more jobs: {what}")

    def finish(self) -> list[str]:
        """End the producers, wait for the last job, and return what was acknowledged."""
        (self._directory / "enough").touch()
        for producer in self._producers:
            assert producer.wait(PATIENCE) == 0
        until(lambda: self.yard.value(ELSEWHERE) == 0, "the end of the last job")
        files = self._directory.glob("acknowledged-*")
        return [line[0] for file in files for line in _lines(file)]

    def runs(self) -> Counter[str]:
        return Counter(job for job, _ in _lines(self._directory / "runs"))

    def servers(self) -> set[str]:
        return {release for _, release in _lines(self._directory / "runs")}

    def _run(self, release: Release, *words: str) -> tuple[subprocess.Popen[bytes], Path]:
        paths = [release.sources(self._directory), PROGRAMS, ROOT]
        environ = {"PYTHONPATH": os.pathsep.join(map(str, paths)), "RELEASE": release.name}
        return self.yard.run(*words, **environ, **release.environ)


def _lines(file: Path) -> list[list[str]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.long
@pytest.mark.timeout(600)  # Three fleets, one after the other, and as many migrations.
@pytest.mark.parametrize(
    ("old", "new"), upgrades(), ids=[f"{old.name}-{new.name}" for old, new in upgrades()]
)
def test_two_releases_work_on_one_schema_and_the_old_one_can_come_back(
    old: Release, new: Release, postgres_url: str, tmp_path: Path
) -> None:
    """No acknowledged job is lost, and each is done once, whichever release enqueued or ran it."""
    with closing(PostgresYard(tmp_path, postgres_url)) as yard:
        upgrade = Upgrade(yard, tmp_path)
        upgrade.migrate(old)
        first = upgrade.fleet(old)
        upgrade.produce(old)
        upgrade.more("the old release on its own schema")
        upgrade.migrate(new)
        upgrade.more("the old release on the new schema")
        upgrade.produce(new)
        second = upgrade.fleet(new)
        upgrade.more("both releases")
        assert len(first.events("worker.started")) == 2, "the old workers went on"
        _leave(first)
        upgrade.more("the new release")
        third = upgrade.fleet(old)
        upgrade.more("both again, after a deploy that is undone")
        _leave(second)
        upgrade.more("the old release on the new schema, started anew")
        jobs = upgrade.finish()
        _leave(third)

        assert len(jobs) == len(set(jobs))
        assert upgrade.servers() == {old.name, new.name}
        assert upgrade.runs() == Counter(jobs), "each job is done once"
        assert yard.value(FINISHED) == len(jobs)


def _leave(fleet: WorkerProcess) -> None:
    fleet.send(signal.SIGTERM)
    assert fleet.ended() == 0, fleet.output()
