"""The service of a new project answers as its clients expect while its store is away."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.network_proxy import Proxy
from tests.support.new_projects import Team, store_address, team_without_installing
from tests.support.redis_fixtures import own_redis
from windlass.cli.new.choices import Choices, StoreChoice

__all__ = ["own_redis"]

SERVICE = """
import json, sys
from fastapi.testclient import TestClient
from shop.api import api

def asked(client, method, path, **how):
    answer = client.request(method, path, **how)
    return [answer.status_code, answer.headers.get("retry-after"), answer.json()]

with TestClient(api) as client:
    new = client.post("/accounts", json={"email": "ada@example.org"})
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps([
        asked(client, "POST", "/accounts", json={"email": "grace@example.org"}),
        asked(client, "GET", new.headers["location"]),
    ]), flush=True)
    sys.stdin.readline()
    print(json.dumps(asked(client, "GET", new.headers["location"])), flush=True)
"""

SITE = """
import json, sys
import django
django.setup()
from django.core.management import CommandError, call_command
from django.test import Client
from shop.models import Account

def asked(email):
    answer = Client().post("/accounts", {"email": email})
    return [answer.status_code, answer.headers.get("retry-after"), Account.objects.count()]

def command(email):
    try:
        call_command("sign_up", email)
    except CommandError as error:
        return str(error)

asked("ada@example.org")
print("ready", flush=True)
for ask, email in ((asked, "grace@example.org"), (asked, "joan@example.org"), (command, "j@j.org")):
    sys.stdin.readline()
    print(json.dumps(ask(email)), flush=True)
"""


class Service:
    """The API of a project, in a process of its own, whose client asks when a test says so."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self) -> Any:
        """Let the client ask, and return the answers."""
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)
        return json.loads(self.line())

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


@contextmanager
def serving(team: Team, program: str = SERVICE) -> Iterator[Service]:
    process = subprocess.Popen(
        [str(team.place / ".venv/bin/python"), "-c", program],
        cwd=team.place,
        env=team.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            service = Service(process)
            assert service.line() == "ready\n"
            yield service
        finally:
            process.kill()


@pytest.mark.long
@pytest.mark.parametrize("store", [StoreChoice.REDIS, StoreChoice.POSTGRES])
def test_a_service_answers_while_its_store_is_away_and_when_it_is_back(
    store: StoreChoice, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    choices = Choices(package="shop", store=store, features=frozenset(["fastapi"]))
    (url,) = store_address(choices, request).values()
    with Proxy(url) as proxy:
        address = {"WINDLASS_URL": proxy.url(url), "WINDLASS_ENQUEUE_TIMEOUT": "1s"}
        team = team_without_installing(choices, tmp_path, address)
        team.run("make", "migrate")
        with serving(team) as service:
            proxy.refuse()
            proxy.reset()
            signed_up, looked_up = service.ask()
            # An outbox keeps the mail. On PostgreSQL the account is where the jobs are.
            if store is StoreChoice.REDIS:
                assert signed_up == [202, None, {"job": None}]
            else:
                assert signed_up[:2] == [503, "30"]
            assert looked_up[:2] == [503, "30"]
            proxy.accept()
            status, _, found = service.ask()
            assert (status, found["state"]) == (200, "pending")


@pytest.mark.long
def test_a_site_keeps_the_account_only_if_its_mail_may_have_been_enqueued(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Prevents a mail to somebody without an account, and an account without its mail."""
    features = frozenset(["django"])
    choices = Choices(package="shop", store=StoreChoice.REDIS, features=features)
    (url,) = store_address(choices, request).values()
    with Proxy(url) as proxy:
        address = {
            "WINDLASS_URL": proxy.url(url),
            "WINDLASS_ENQUEUE_TIMEOUT": "1s",
            "DJANGO_SETTINGS_MODULE": "shop.settings",
            "SECRET_KEY": "a-secret-of-a-test",
            "ALLOWED_HOSTS": "testserver",
        }
        team = team_without_installing(choices, tmp_path, address)
        team.run("make", "migrate")
        with serving(team, SITE) as site:
            proxy.black_hole()  # The site sends the job, and gets no answer.
            assert site.ask() == [202, None, 2]
            proxy.refuse()
            proxy.reset()
            assert site.ask() == [503, "30", 2]
            assert "windlass doctor" in site.ask()
