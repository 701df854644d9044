"""A real Prometheus scrapes real workers, and tells when they are gone."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

import pytest

from tests.support.exposition import parse
from tests.support.label_bombs import plant
from tests.system.alerts import RULES, promtool
from tests.system.debian import program
from windlass import Windlass

ROOT = Path(__file__).parents[2]
TOKEN = "a-token-of-this-test"
PATIENCE = 90.0
SHOP = """
from windlass import Windlass

app = Windlass("sqlite:///jobs.db")


@app.job(queue="mail")
async def send() -> None: ...


@app.job(queue="reports", slo="start within 1s", max_retries=0)
async def report(good: bool) -> None:
    if not good:
        raise ValueError("bad")
"""


@contextmanager
def worker(directory: Path, queue: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker with two processes for one queue."""
    command = ["worker", "shop:app", "--queues", queue, "--processes", "2", "--lease", "2s"]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(directory), str(ROOT / "src")]),
        "WINDLASS_METRICS_PORT": str(port),
        "WINDLASS_METRICS_TOKEN": TOKEN,
    }
    with (directory / f"{queue}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "windlass", *command],
            cwd=directory,
            env=environment,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a supervisor; its workers end with it."""
    if process.poll() is None:
        process.kill()
        process.wait()


def address(directory: Path, queue: str) -> str:
    """Wait until a worker serves, and return where its metrics are."""

    def look() -> str | None:
        log = (directory / f"{queue}.log").read_text()
        found = re.search(r'"metrics\.served".*"address": "([^"]+)"', log)
        return found and found[1]

    return str(until(look, f"the metrics of {queue}"))


def until(look: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (seen := look()):
        assert time.monotonic() < deadline, f"not within {PATIENCE:g} s: {what}"
        time.sleep(0.2)
    return seen


class Prometheus:
    """A server that scrapes and evaluates every second."""

    def __init__(self, directory: Path, targets: list[str]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        # What has to last for minutes there, so that nobody is woken in vain, lasts a second here.
        rules = re.sub(r"for: \w+", "for: 1s", RULES.read_text())
        (directory / "alerts.yml").write_text(rules)
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["alerts.yml"],
            "scrape_configs": [
                {
                    "job_name": "windlass",
                    "authorization": {"credentials": TOKEN},
                    "static_configs": [{"targets": targets}],
                }
            ],
        }
        (directory / "prometheus.yml").write_text(json.dumps(config))
        self._process = subprocess.Popen(
            [
                program("prometheus"),
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{self._port}",
            ],
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def ask(self, path: str) -> Any:
        """Return what its API answers; nothing as long as it does not."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/api/v1/{path}") as answer:
                return json.load(answer)["data"]
        except OSError:
            return {}

    def healthy(self) -> int:
        """Return how many targets can be scraped."""
        targets = self.ask("targets").get("activeTargets", [])
        return sum(target["health"] == "up" for target in targets)

    def firing(self) -> set[tuple[str, str]]:
        """Return the alerts that fire, each with the queue, or the kind, that it is about."""
        return {
            (alert["labels"]["alertname"], alert["labels"].get("queue", ""))
            for alert in self.ask("alerts").get("alerts", [])
            if alert["state"] == "firing"
        }


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


def enqueue(directory: Path, code: str) -> None:
    subprocess.run(
        [sys.executable, "-c", f"from shop import *; {code}"],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        check=True,
    )


def scrape(where: str) -> str:
    request = urllib.request.Request(
        f"http://{where}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}
    )
    with urllib.request.urlopen(request) as answer:
        text: str = answer.read().decode()
    return text


def test_alerts_fire_when_the_workers_of_a_queue_are_killed_and_when_all_are(
    directory: Path,
) -> None:
    with ExitStack() as stack:
        mail = stack.enter_context(worker(directory, "mail", 23_000))
        reports = stack.enter_context(worker(directory, "reports", 23_000))
        places = [address(directory, "mail"), address(directory, "reports")]
        assert len(set(places)) == 2, "two workers on one host do not collide"
        enqueue(directory, "send.enqueue(); report.enqueue(True)")
        prometheus = stack.enter_context(Prometheus(directory, places))
        until(lambda: prometheus.healthy() == 2, "both are scraped")
        until(lambda: "windlass_queue_workers" in scrape(places[0]), "a sample")
        checked = promtool("check", "metrics", stdin=scrape(places[0]))
        assert checked.returncode == 0, checked.stdout + checked.stderr
        assert ("WindlassQueueUnserved", "reports") not in prometheus.firing()
        assert ("WindlassNoWorkers", "") not in prometheus.firing()

        os.killpg(reports.pid, signal.SIGKILL)
        _end(reports)
        enqueue(directory, "report.enqueue(True)")
        unserved = ("WindlassQueueUnserved", "reports")
        until(lambda: unserved in prometheus.firing(), "nobody serves reports")
        assert ("WindlassNoWorkers", "") not in prometheus.firing(), "mail is served"

        _end(mail)
        until(lambda: ("WindlassNoWorkers", "") in prometheus.firing(), "nobody serves at all")


def test_label_bombs_pass_promtool(directory: Path) -> None:
    """Torture 48: what hostile names become is what Prometheus' own tool can read."""
    app = Windlass(f"sqlite:///{directory / 'jobs.db'}")

    async def bomb() -> None:
        await plant(app, 10_000, unstorable=False)
        await app.aclose()

    asyncio.run(bomb())
    with worker(directory, "mail", 23_000):
        place = address(directory, "mail")
        text = until(lambda: "windlass_queue_jobs{" in (page := scrape(place)) and page, "a sample")
        checked = promtool("check", "metrics", stdin=text)
        assert checked.returncode == 0, checked.stdout + checked.stderr
        parse(text)


def test_prometheus_is_refused_without_the_token(directory: Path) -> None:
    with worker(directory, "mail", 23_000), pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://{address(directory, 'mail')}/metrics")
    assert refused.value.code == 401
    refused.value.close()
