"""What deploy/ ships fits the code: flags, settings, ports, times; and every file is explained."""

from __future__ import annotations

import asyncio
import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support.redis_server import RedisServer
from windlass.cli.root_command import cli
from windlass.core.metrics.families import FAMILIES
from windlass.core.values.durations import duration
from windlass.process.grace_periods import DRAIN_GRACE
from windlass.settings import Settings, describe_settings, load_settings
from windlass.store.redis import RedisStore

yaml = pytest.importorskip("yaml", reason="pip install windlass[dev]")

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "systemd" / "windlass.service"
DOCKERFILE = DEPLOY / "docker" / "Dockerfile"
IGNORED = DEPLOY / "docker" / "Dockerfile.dockerignore"
COMPOSE = DEPLOY / "docker" / "compose.yaml"
MANIFEST_OF_SETTINGS = DEPLOY / "kubernetes" / "config.yaml"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
DRAIN = DRAIN_GRACE.total_seconds()
"""Seconds that `--drain` waits for beyond the shutdown timeout."""
OTHERS = {"WINDLASS_APP", "PATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}
PROBES = {"/health/live", "/health/ready"}


def known_variables() -> set[str]:
    settings = describe_settings()
    names = {name for each in settings for name in (each.variable, *each.other_names)}
    return names | OTHERS


def objects(kind: str) -> list[dict[str, Any]]:
    loaded = [each for path in MANIFESTS for each in yaml.safe_load_all(path.read_text("utf-8"))]
    return [each for each in loaded if each["kind"] == kind]


def only(kind: str) -> dict[str, Any]:
    (found,) = objects(kind)
    return found


def worker() -> dict[str, Any]:
    (container,) = only("Deployment")["spec"]["template"]["spec"]["containers"]
    return dict(container)


def config() -> dict[str, str]:
    return dict(only("ConfigMap")["data"])


class Unit(configparser.RawConfigParser):
    """A unit of systemd, in which a name may occur more than once."""

    def __init__(self, path: Path) -> None:
        super().__init__(strict=False, delimiters=("=",), comment_prefixes=("#",))
        self.optionxform = str  # type: ignore[assignment,method-assign]
        self.read(path)
        self.text = path.read_text("utf-8")

    @property
    def environment(self) -> dict[str, str]:
        pairs = re.findall(r"^Environment=(\w+)=(.*)$", self.text, re.MULTILINE)
        return dict(pairs)


def check_command(words: list[str]) -> None:
    """Check that the command line understands this, but for values."""
    command, *rest = words
    told = CliRunner().invoke(cli, [command, "--help"])
    assert told.exit_code == 0, command
    for flag in [word for word in rest if word.startswith("--")]:
        assert re.search(rf"{flag}\b", told.output), f"{command} has no {flag}"


# -- systemd ---------------------------------------------------------------------------------------


def test_the_unit_starts_a_worker_by_flags_that_there_are() -> None:
    unit = Unit(UNIT)
    program, *words = shlex.split(unit["Service"]["ExecStart"])
    assert Path(program).name == "windlass"
    check_command(words)
    assert set(unit.environment) <= known_variables()


def test_the_unit_gives_a_drain_the_time_that_it_takes_and_tells_the_supervisor_alone() -> None:
    unit = Unit(UNIT)
    timeout = duration(unit.environment["WINDLASS_SHUTDOWN_TIMEOUT"]).total_seconds()
    assert float(unit["Service"]["TimeoutStopSec"]) >= timeout + DRAIN
    assert unit["Service"]["KillMode"] == "mixed"
    assert unit["Service"]["KillSignal"] == "SIGTERM"
    assert unit["Service"]["OOMPolicy"] == "continue"
    assert "-HUP" in unit["Service"]["ExecReload"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    path = tmp_path / "windlass.service"
    there = UNIT.read_text("utf-8").replace("/srv/shop/.venv/bin/windlass", "/bin/true")
    path.write_text(there)
    said = subprocess.run(
        ["systemd-analyze", "verify", path], capture_output=True, text=True, check=False
    )
    assert [line for line in said.stderr.splitlines() if "windlass.service" in line] == []


# -- docker ----------------------------------------------------------------------------------------


def instructions() -> dict[str, list[str]]:
    text = re.sub(r"\\\n\s*", " ", DOCKERFILE.read_text("utf-8"))
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            word, _, rest = line.partition(" ")
            found.setdefault(word, []).append(rest)
    return found


def test_the_image_runs_a_worker_that_gets_its_signals_and_is_not_root() -> None:
    found = instructions()
    assert json.loads(found["ENTRYPOINT"][0]) == ["windlass"]
    check_command(json.loads(found["CMD"][0]))
    assert found["STOPSIGNAL"] == ["SIGTERM"]
    assert int(found["USER"][0]) > 0


def test_the_image_works_in_a_directory_that_its_user_cannot_write_to() -> None:
    """Prevents: a module or a .env that somebody left in /tmp becomes part of the worker."""
    found = instructions()
    copied = [each.split()[-1] for each in found["COPY"] if each.startswith("--from=build")]
    assert found["WORKDIR"][-1] in copied, "what is copied without --chown is root's"
    assert "--chown" not in "".join(found["COPY"])


def test_the_image_sets_what_is_known_and_looks_after_its_own_health() -> None:
    found = instructions()
    variables = dict(pair.split("=", 1) for pair in shlex.split(found["ENV"][0]))
    assert set(variables) <= known_variables()
    assert found["EXPOSE"] == [variables["METRICS_PORT"]]
    check = json.loads(found["HEALTHCHECK"][0].partition("CMD ")[2])
    compile(check[2], "HEALTHCHECK", "exec")
    assert any(path in check[2] for path in PROBES)


class _Live(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health/live" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.mark.parametrize("variable", ["METRICS_PORT", "WINDLASS_METRICS_PORT"])
def test_the_image_asks_for_its_health_at_the_port_that_was_set(variable: str) -> None:
    check = json.loads(instructions()["HEALTHCHECK"][0].partition("CMD ")[2])
    with HTTPServer(("127.0.0.1", 0), _Live) as server:
        answering = threading.Thread(target=server.serve_forever)
        answering.start()
        environment = {**os.environ, "METRICS_PORT": "1", variable: str(server.server_port)}
        asked = subprocess.run([sys.executable, *check[1:]], env=environment, check=False)
        server.shutdown()
        answering.join()
    assert asked.returncode == 0


def test_the_published_port_of_the_image_reaches_the_worker() -> None:
    variables = dict(pair.split("=", 1) for pair in shlex.split(instructions()["ENV"][0]))
    assert variables["WINDLASS_METRICS_HOST"] == "0.0.0.0"


# -- kubernetes ------------------------------------------------------------------------------------


def test_the_settings_of_all_pods_can_be_set_to_that() -> None:
    variables = {**config(), **only("Secret")["stringData"]}
    assert set(variables) <= known_variables()
    resolved = load_settings({}, code={}, environ=variables, directory=ROOT)
    assert resolved.warnings == ()


def test_the_probes_ask_where_the_worker_answers() -> None:
    (port,) = worker()["ports"]
    assert str(port["containerPort"]) == config()["METRICS_PORT"]
    assert config()["WINDLASS_METRICS_HOST"] == "0.0.0.0"
    paths = {}
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = worker()[name]["httpGet"]
        assert asked["port"] == port["name"]
        paths[name] = asked["path"]
    assert paths["livenessProbe"] == "/health/live", "an outage of the database restarts nobody"
    assert paths["readinessProbe"] == "/health/ready"


def test_a_pod_has_the_time_to_drain() -> None:
    stopping = worker()["lifecycle"]["preStop"]["exec"]["command"]
    assert stopping == ["windlass", "worker", "--drain", "1"]
    check_command(stopping[1:])
    timeout = duration(config()["WINDLASS_SHUTDOWN_TIMEOUT"]).total_seconds()
    grace = only("Deployment")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace >= timeout + DRAIN + 5


def containers() -> Iterator[dict[str, Any]]:
    for kind in ("Deployment", "Job"):
        yield from only(kind)["spec"]["template"]["spec"]["containers"]


def test_every_container_runs_a_command_that_there_is_from_one_image_and_not_as_root() -> None:
    names = {only("ConfigMap")["metadata"]["name"], only("Secret")["metadata"]["name"]}
    for each in containers():
        check_command(each["args"])
        sources = [next(iter(source.values()))["name"] for source in each["envFrom"]]
        assert set(sources) <= names
        assert each["securityContext"]["allowPrivilegeEscalation"] is False
        assert each["securityContext"]["readOnlyRootFilesystem"] is True
    assert len({each["image"] for each in containers()}) == 1


def test_the_scaler_goes_by_the_metric_of_the_workers_and_never_to_none() -> None:
    spec = only("ScaledObject")["spec"]
    assert spec["scaleTargetRef"]["name"] == only("Deployment")["metadata"]["name"]
    assert spec["minReplicaCount"] >= 1
    (trigger,) = spec["triggers"]
    name, unless = re.findall(r"windlass_\w+", trigger["metadata"]["query"])
    assert FAMILIES[name].labels == ("queue", "state")
    assert FAMILIES[unless].labels == ("queue",), "more workers do not empty a paused queue"
    assert f"`{name}`" in (ROOT / "docs" / "deployment.md").read_text("utf-8")


def test_every_release_migrates_by_a_job_of_its_own() -> None:
    """What a job runs cannot be changed: to apply one of the same name with a new image fails."""
    named = only("Job")["metadata"]
    assert named["generateName"].endswith("-")
    assert "name" not in named
    page = (ROOT / "docs" / "deployment.md").read_text("utf-8")
    assert "kubectl create -f deploy/kubernetes/migrate.yaml" in page


def test_nothing_but_the_scaler_says_how_many_workers_there_are() -> None:
    assert "replicas" not in only("Deployment")["spec"], "every apply would set the fleet back"


def test_a_node_can_be_drained_that_has_the_only_worker() -> None:
    spec = only("PodDisruptionBudget")["spec"]
    assert spec["selector"] == only("Deployment")["spec"]["selector"]
    least = only("ScaledObject")["spec"]["minReplicaCount"]
    assert spec.get("minAvailable", 0) < least
    assert spec["maxUnavailable"] >= 1


def test_prometheus_finds_the_pods_and_their_token() -> None:
    spec = only("PodMonitor")["spec"]
    labels = only("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == labels
    (endpoint,) = spec["podMetricsEndpoints"]
    assert endpoint["port"] == worker()["ports"][0]["name"]
    credentials = endpoint["authorization"]["credentials"]
    assert credentials["name"] == only("Secret")["metadata"]["name"]
    assert credentials["key"] in only("Secret")["stringData"]


def test_the_alerts_become_what_the_prometheus_operator_takes() -> None:
    """It loads no plain file of rules, so that its users had none of the alerts."""
    page = (ROOT / "docs" / "deployment.md").read_text("utf-8")
    (command,) = re.findall(
        r"^(\(printf [^`]*PrometheusRule[^`]*) \| kubectl apply -f -$", page, re.MULTILINE
    )
    made = subprocess.run(
        ["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=True
    )
    rules = yaml.safe_load(made.stdout)
    assert rules.pop("apiVersion") == only("PodMonitor")["apiVersion"] == "monitoring.coreos.com/v1"
    assert rules.pop("kind") == "PrometheusRule"
    assert re.fullmatch(r"[a-z0-9-]+", rules.pop("metadata")["name"])
    shipped = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text("utf-8"))
    assert rules == {"spec": {"groups": shipped["groups"]}}
    for rule in (each for group in shipped["groups"] for each in group["rules"]):
        of_alerts = (
            {"alert", "for", "keep_firing_for", "annotations"} if "alert" in rule else {"record"}
        )
        assert set(rule) <= {"expr", "labels", *of_alerts}
        named = {**rule.get("labels", {}), **rule.get("annotations", {})}
        texts = (*named.values(), rule["expr"])
        assert all(isinstance(each, str) for each in texts), "it takes nothing else there"


def test_no_worker_is_shipped_at_the_port_of_prometheus() -> None:
    """On a host with both, Prometheus scraped itself there, and saw no worker."""
    image = dict(pair.split("=", 1) for pair in shlex.split(instructions()["ENV"][0]))
    (port,) = {each["METRICS_PORT"] for each in (Unit(UNIT).environment, image, config())}
    assert port == str(Settings().metrics_port) != "9090"
    page = (ROOT / "docs" / "metrics.md").read_text("utf-8")
    assert f"`METRICS_PORT={port}`, as all of `deploy/` does" in page
    assert f'targets: ["worker-1:{port}"' in page


# -- redis -----------------------------------------------------------------------------------------


def compose() -> dict[str, Any]:
    return dict(yaml.safe_load(COMPOSE.read_text("utf-8"))["services"])


def stateful() -> dict[str, Any]:
    (container,) = only("StatefulSet")["spec"]["template"]["spec"]["containers"]
    return dict(container)


def documented() -> list[str]:
    page = (ROOT / "docs" / "redis.md").read_text("utf-8")
    (block,) = re.findall(r"^```text\n(appendonly .*?)^```", page, re.DOTALL | re.MULTILINE)
    return [word for line in block.splitlines() for word in f"--{line}".split()]


@pytest.mark.parametrize("which", ["compose", "kubernetes", "the page"])
def test_a_redis_with_the_settings_that_are_shipped_endangers_no_job(
    which: str, tmp_path: Path
) -> None:
    words = {
        "compose": lambda: compose()["redis"]["command"][1:],
        "kubernetes": lambda: stateful()["args"],
        "the page": documented,
    }[which]()
    names = [word.removeprefix("--") for word in words[::2]]
    config = {
        name: value for name, value in zip(names, words[1::2], strict=True) if name != "requirepass"
    }

    async def findings(url: str) -> list[str]:
        store = RedisStore(url)
        await store.open()
        found = [each.problem for each in await store.findings()]
        await store.close()
        return found

    with RedisServer(tmp_path, **config) as server:
        assert asyncio.run(findings(server.url)) == []


def test_the_workers_of_the_compose_file_run_by_flags_and_settings_that_there_are() -> None:
    worker = compose()["worker"]
    check_command(worker["command"])
    assert set(worker["environment"]) <= known_variables()
    timeout = duration(worker["environment"]["WINDLASS_SHUTDOWN_TIMEOUT"]).total_seconds()
    grace = duration(worker["stop_grace_period"]).total_seconds()
    assert grace >= timeout + DRAIN + 5


def test_workers_find_the_redis_that_is_shipped() -> None:
    (named,) = re.findall(r"redis://:[\w-]+@([\w-]+):6379", MANIFEST_OF_SETTINGS.read_text("utf-8"))
    assert only("Service")["metadata"]["name"] == named
    assert only("StatefulSet")["spec"]["serviceName"] == named
    labels = only("StatefulSet")["spec"]["template"]["metadata"]["labels"]
    assert only("Service")["spec"]["selector"] == labels


# -- the page about it -----------------------------------------------------------------------------


def test_every_file_is_explained_and_every_file_that_is_named_is_there() -> None:
    page = (ROOT / "docs" / "deployment.md").read_text("utf-8")
    named = set(re.findall(r"deploy/(?:systemd|docker|kubernetes)/[\w.]+", page))
    shipped = {
        path.relative_to(ROOT).as_posix()
        for path in [UNIT, DOCKERFILE, IGNORED, COMPOSE, *MANIFESTS]
    }
    assert named == shipped
