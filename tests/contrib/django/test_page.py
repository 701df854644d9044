"""The web page behind Django's own login: staff may look, permissions decide who may act."""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.contrib.sessions.models import Session
from django.core.asgi import get_asgi_application
from django.core.management import call_command
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.test.utils import override_settings
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from tests.contrib.django.conftest import Project
from windlass.contrib.django.page import SessionAccess, with_page
from windlass.contrib.django.project_apps import windlass_app
from windlass.web import Access, Role

pytestmark = pytest.mark.parametrize("place", ["sqlite"], indirect=True)
LOGIN = "/admin/login/"
PASSWORD = "correct horse"
HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
User = get_user_model()


@pytest.fixture(scope="module")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the tables of users and sessions are kept once they are made."""
    return tmp_path_factory.mktemp("migrated") / "db.sqlite3"


@pytest.fixture
def site(project: Project, migrated_file: Path) -> Iterator[Project]:
    """Give a project with the tables of users and sessions, and the admin as its login."""
    own = settings.DATABASES["default"]["NAME"]
    with override_settings(LOGIN_URL="admin:login", STATIC_URL="static/", PASSWORD_HASHERS=HASHERS):
        if not migrated_file.exists():
            call_command("migrate", verbosity=0, run_syncdb=True)
            connection.close()
            shutil.copy(own, migrated_file)
        connection.close()
        shutil.copy(migrated_file, own)
        yield project


@contextmanager
def browser(**how: Any) -> Iterator[TestClient]:
    """Give a browser on Django's own ASGI application, with the page beside it."""
    application = with_page(get_asgi_application(), "/jobs", **how)
    with TestClient(application, follow_redirects=False) as client:
        yield client


def person(*permissions: str, name: str = "ada", **fields: Any) -> Any:
    """Make a user with permissions of Windlass."""
    user = User.objects.create_user(name, password=PASSWORD, **fields)
    found = Permission.objects.filter(content_type__app_label="windlass", codename__in=permissions)
    assert found.count() == len(permissions)
    user.user_permissions.set(found)
    return user


def log_in(client: TestClient, back: str = "/jobs/") -> str:
    """Log in by Django's own form, and return the address to which it leads."""
    client.get(LOGIN)
    form = {"username": "ada", "password": PASSWORD, "next": back}
    token = {"csrfmiddlewaretoken": client.cookies["csrftoken"]}
    answer = client.post(LOGIN, data=form | token)
    assert answer.status_code == 302, answer.text
    return str(answer.headers["location"])


def may_do(client: TestClient) -> set[str]:
    """Return which action the page takes: that of an operator, and that of an admin."""
    own = {"origin": "http://testserver"}
    forms = {"pause-queue": {"name": "mail"}, "set-limit": {"name": "mail", "concurrency": 3}}
    answers = {
        action: client.post(f"/jobs/api/v1/actions/{action}", headers=own, json=form)
        for action, form in forms.items()
    }
    assert {answer.status_code for answer in answers.values()} <= {200, 403}, answers
    return {action for action, answer in answers.items() if answer.status_code == 200}


@pytest.mark.parametrize(
    ("permissions", "fields", "actions"),
    [
        ((), {"is_staff": True}, set()),
        (("operate_jobs",), {"is_staff": True}, {"pause-queue"}),
        (("operate_jobs",), {}, {"pause-queue"}),
        (("administer_jobs",), {"is_staff": True}, {"pause-queue", "set-limit"}),
        ((), {"is_staff": True, "is_superuser": True}, {"pause-queue", "set-limit"}),
    ],
)
def test_staff_may_look_and_permissions_decide_who_may_act(
    site: Project, permissions: tuple[str, ...], fields: dict[str, Any], actions: set[str]
) -> None:
    person(*permissions, **fields)
    site.app.limit("mail", concurrency=1)
    with browser() as client:
        if "is_staff" in fields:
            assert log_in(client) == "/jobs/"
        else:  # Not by the form of the admin, which lets in staff only.
            client.cookies["sessionid"] = session_of("ada")
        assert client.get("/jobs/").status_code == 200
        assert may_do(client) == actions
    site.app.control.reset_limit("mail")


def session_of(name: str) -> str:
    django = Client()
    django.force_login(User.objects.get(username=name))
    return str(django.cookies["sessionid"].value)


def test_a_person_who_is_not_logged_in_is_sent_to_the_login_and_back(site: Project) -> None:
    person(is_staff=True)
    with browser() as client:
        answer = client.get("/jobs/dead?search=kind%3Aa")
        assert answer.status_code == 303
        login = urlsplit(answer.headers["location"])
        assert login.path == LOGIN
        (back,) = parse_qs(login.query)["next"]
        assert log_in(client, back) == back == "/jobs/dead?search=kind%3Aa"


def test_a_form_of_a_session_that_has_ended_leads_to_the_login_and_then_to_the_page(
    site: Project,
) -> None:
    with browser() as client:
        own = {"origin": "http://testserver"}
        answer = client.post("/jobs/do/pause-queue", headers=own)
        assert answer.headers["location"] == f"{LOGIN}?next=%2Fjobs%2F"


def test_a_script_without_a_session_is_refused(site: Project) -> None:
    with browser() as client:
        assert client.get("/jobs/api/v1/queues").status_code == 403
        client.cookies["sessionid"] = "made-up"
        assert client.get("/jobs/api/v1/queues").status_code == 403


@pytest.mark.parametrize("change", ["is_staff", "is_active", "password", "session"])
def test_access_ends_with_what_it_rests_on(site: Project, change: str) -> None:
    ada = person(is_staff=True)
    with browser() as client:
        log_in(client)
        assert client.get("/jobs/").status_code == 200
        match change:
            case "password":
                ada.set_password("another")
            case "session":
                Session.objects.all().delete()
            case _:
                setattr(ada, change, False)
        ada.save()
        assert client.get("/jobs/").status_code == (403 if change == "is_staff" else 303)


def test_the_page_leaves_a_session_to_django_when_the_secret_key_was_rotated(site: Project) -> None:
    person(is_staff=True)
    with browser() as client:
        log_in(client)
        before = client.cookies["sessionid"]
        with override_settings(SECRET_KEY="a new one", SECRET_KEY_FALLBACKS=[settings.SECRET_KEY]):
            for _ in range(2):
                assert client.get("/jobs/").status_code == 200
            assert Session.objects.get().session_key == before
            assert client.get("/admin/").status_code == 200
            assert client.cookies["sessionid"] != before
            assert client.get("/jobs/").status_code == 200


def test_other_permissions_may_decide(site: Project) -> None:
    access = SessionAccess(
        view="windlass.operate_jobs", operate="shop.none", payloads="windlass.administer_jobs"
    )
    staff, operator = person(is_staff=True), person("operate_jobs", name="grace")
    admin = person("administer_jobs", name="joan", is_active=True)
    assert access.access_of(staff) is None
    assert access.access_of(operator) == Access(who="grace", payloads=False)
    assert access.access_of(admin) == Access(who="joan", role=Role.ADMIN)


def test_all_staff_see_payloads_unless_a_permission_is_named(site: Project) -> None:
    staff = person(is_staff=True)
    assert SessionAccess().access_of(staff) == Access(who="ada", payloads=True)
    limited = SessionAccess(payloads="windlass.operate_jobs")
    assert limited.access_of(staff) == Access(who="ada", payloads=False)


def refuse(get_response: object) -> Callable[[HttpRequest], HttpResponse]:
    """Be a middleware that lets nobody in."""
    return lambda request: HttpResponse(status=418)


def test_the_middleware_of_the_project_sees_no_request_for_the_page(site: Project) -> None:
    """The page on Django says so: who relies on middleware has to pass an `access` of their own."""
    person(is_staff=True)
    cookies = {"sessionid": session_of("ada")}
    with override_settings(MIDDLEWARE=[f"{__name__}.refuse"]), browser() as client:
        client.cookies.update(cookies)
        assert client.get(LOGIN).status_code == 418
        assert client.get("/jobs/").status_code == 200


def test_the_entry_in_the_admin_leads_to_the_page(site: Project) -> None:
    person(is_staff=True)
    with site.options(web_url="/jobs/"), browser() as client:
        log_in(client, "/admin/")
        links = re.findall(r'href="(/jobs[^"]*)"', client.get("/admin/").text)
        assert links
        assert {client.get(link).status_code for link in links} == {200}


def test_the_rest_of_the_site_is_served_as_before(site: Project) -> None:
    with browser() as client:
        assert client.get("/jobsearch").status_code == 404
        assert client.get("/jobs").headers["location"].endswith("/jobs/")
        assert client.get(LOGIN).status_code == 200


def test_the_permissions_have_no_table_and_no_migration(site: Project) -> None:
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)
    written = StringIO()
    for everything in (False, True):
        call_command("dumpdata", "windlass", use_base_manager=everything, stdout=written)
    assert "".join(written.getvalue().split()) == "[][]"
    assert "windlass_jobs" not in connection.introspection.table_names()


def test_an_application_with_the_page_beside_it_keeps_its_own_lifespan_and_routes(
    site: Project,
) -> None:
    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        lived.append("began")
        yield
        lived.append("ended")

    async def where(request: Request) -> PlainTextResponse:
        return PlainTextResponse(request.url_for("where").path)

    lived: list[str] = []
    own = Starlette(routes=[Route("/where", where, name="where")], lifespan=lifespan)
    with TestClient(with_page(own, "/jobs"), follow_redirects=False) as client:
        assert client.get("/where").text == "/where"
        assert client.get("/jobs/").status_code == 303
    assert lived == ["began", "ended"]


def test_an_address_on_another_host_is_no_way_back_from_the_login(site: Project) -> None:
    with TestClient(windlass_app().web(access=SessionAccess()), follow_redirects=False) as client:
        answer = client.get("http://testserver//evil.example/x")
    assert answer.status_code == 303
    assert parse_qs(urlsplit(answer.headers["location"]).query)["next"] == ["/evil.example/x"]
