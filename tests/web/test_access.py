"""Who may open the page, and who may act: by this host, the token, or the program's own login."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from tests.web.viewing import HERE, TOKEN, of_role, seeded, shop, viewer, with_breaker
from windlass import ConfigError, State
from windlass.web import Access, Role
from windlass.web.access.sessions import MAX_ADDRESSES, SESSION_SECONDS, Sessions
from windlass.web.actions.registry import ACTIONS
from windlass.web.api.routes import API_ROUTES
from windlass.web.asgi import PAGE_ROUTES
from windlass.web.server import refuse_open_page

_OPEN = {"/login", "/static/{release}/{name}", "/favicon.ico"}
_PROXY_HEADERS = {
    "forwarded": "for=192.0.2.7",
    "via": "1.1 proxy.example.org",
    "x-forwarded-for": "192.0.2.7",
    "x-forwarded-host": "jobs.example.org",
    "x-forwarded-proto": "https",
    "x-real-ip": "192.0.2.7",
}
ROLES = list(Role)


def _path(route: Route) -> str:
    return (
        route.path.replace("{id}", "0" * 8 + "-0000-7000-8000-" + "0" * 12)
        .replace("{action}", "pause-queue")
        .replace("{release}", "x")
        .replace("{name}", "page.css")
        .replace("{name:path}", "mail")
    )


def test_every_route_refuses_who_has_no_access() -> None:
    async def main() -> None:
        page = shop().web(access=lambda _: None)
        async with viewer(page) as stranger:
            for route in (*PAGE_ROUTES, *API_ROUTES):
                for method in sorted((route.methods or set()) - {"HEAD"}):
                    answer = await stranger.request(method, _path(route))
                    if route.path not in _OPEN:
                        assert answer.status_code == 403, (method, route.path)

    asyncio.run(main())


@pytest.mark.parametrize("prefix", ["/static", "/login", "/jobs"])
def test_a_prefix_opens_nothing(prefix: str) -> None:
    async def main() -> None:
        page = Starlette(routes=[Mount(prefix, shop().web(access=lambda _: None))])
        async with viewer(page) as stranger:
            for path in ("/", "/jobs", "/api/v1/stats", "/x", "/events"):
                assert (await stranger.get(prefix + path)).status_code == 403, path

    asyncio.run(main())


@pytest.mark.parametrize("role", ROLES)
def test_each_action_takes_its_role_on_the_page_and_in_the_api(role: Role) -> None:
    async def main() -> None:
        app = shop()
        ids = await seeded(app)
        await with_breaker(app)
        page = app.web(access=of_role(role))
        fields: dict[str, dict[str, object]] = {
            "retry-job": {"id": ids["scheduled"]},
            "cancel-job": {"id": ids["pending"]},
            "redrive-job": {"id": ids["dead"]},
            "edit-job": {"id": ids["dead"], "payload": '{"number": 8}'},
            "purge-job": {"id": ids["completed"]},
            "enqueue": {"kind": "send_email", "payload": '{"to": "x"}'},
            "set-limit": {"name": "gpu", "concurrency": "5"},
        }
        async with viewer(page) as person:
            for name, action in ACTIONS.items():
                search = {"search": "state:dead,pending"} if name.endswith("-jobs") else None
                given = fields.get(name) or search or {"name": _name_for(name)}
                data = {key: str(value) for key, value in given.items()}
                allowed = role.includes(action.role)
                asked = await person.get(f"/actions/{name}", params=data)
                assert (asked.status_code != 403) is allowed, name
                acted = await person.post(f"/actions/{name}", data=data)
                assert (acted.status_code != 403) is allowed, name
                called = await person.post(f"/api/v1/actions/{name}", json=given and data)
                assert (called.status_code != 403) is allowed, name

    asyncio.run(main())


def _name_for(action: str) -> str:
    subject = action.rpartition("-")[2]
    return {"breaker": "stripe", "schedule": "nightly", "limit": "gpu"}.get(subject, "mail")


def test_a_viewer_changes_nothing() -> None:
    async def main() -> None:
        app = shop()
        ids = await seeded(app)
        async with viewer(app.web(access=of_role("viewer"))) as person:
            await person.post("/actions/cancel-job", data={"id": str(ids["pending"])})
            await person.post("/api/v1/actions/purge-job", json={"id": str(ids["dead"])})
            await person.post("/actions/pause-queue", data={"name": "mail"})
        for state in ("pending", "dead"):
            job = await app.store.get(ids[state])
            assert job is not None
            assert job.state is State(state)
        assert not await app.control.apaused()

    asyncio.run(main())


def test_nobody_acts_on_a_page_that_is_read_only() -> None:
    async def main() -> None:
        app = shop()
        async with viewer(app.web(read_only=True)) as person:
            assert (await person.get("/")).status_code == 200
            answer = await person.post("/actions/pause-queue", data={"name": "mail"})
            assert answer.status_code == 403
        assert not await app.control.apaused()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("client", "base", "headers"),
    [
        (("192.0.2.7", 5), HERE, {}),
        (("127.0.0.1", 5), "http://rebound.example.org", {}),
        *((("127.0.0.1", 5), HERE, {name: value}) for name, value in _PROXY_HEADERS.items()),
    ],
    ids=["another host", "a rebound name", *_PROXY_HEADERS],
)
def test_without_a_login_only_this_host_is_served(
    client: tuple[str, int], base: str, headers: dict[str, str]
) -> None:
    async def main() -> None:
        async with viewer(shop().web(), client=client, base=base, headers=headers) as person:
            answer = await person.get("/")
            assert answer.status_code == 403
            assert "WINDLASS_WEB_TOKEN" in answer.text
            assert (await person.get("/api/v1/stats")).status_code == 403

    asyncio.run(main())


def test_a_proxy_that_sends_no_headers_of_its_own_is_known_by_http_1_0() -> None:
    page = shop().web()

    async def proxied(scope: Scope, receive: Receive, send: Send) -> None:
        await page({**scope, "http_version": "1.0"}, receive, send)

    async def main() -> None:
        async with viewer(Starlette(routes=[Mount("/", proxied)])) as stranger:
            assert (await stranger.get("/")).status_code == 403
            answer = await stranger.post("/actions/pause-queue", data={"name": "mail"})
            assert answer.status_code == 403

    asyncio.run(main())


@pytest.mark.parametrize("base", [HERE, "http://localhost:8080", "http://[::1]:8080"])
def test_this_host_is_served_by_all_of_its_names(base: str) -> None:
    async def main() -> None:
        async with viewer(shop().web(), base=base, client=("::1", 5)) as person:
            assert (await person.get("/")).status_code == 200

    asyncio.run(main())


def test_the_token_opens_the_page_by_a_login_and_the_api_as_a_bearer() -> None:
    async def main() -> None:
        page = shop(web_token=TOKEN).web()
        async with viewer(page, client=("192.0.2.7", 5), base="http://jobs.internal") as person:
            refused = await person.get("/errors")
            assert refused.status_code == 303
            assert refused.headers["location"] == "/login?next=%2Ferrors"
            assert (await person.get("/api/v1/stats")).status_code == 401
            wrong = await person.post("/login", data={"token": "wrong"})
            assert wrong.status_code == 403
            right = await person.post("/login?next=/errors", data={"token": TOKEN})
            assert (right.status_code, right.headers["location"]) == (303, "/errors")
            cookie = right.headers["set-cookie"]
            assert TOKEN not in cookie
            assert "HttpOnly" in cookie
            assert (await person.get("/errors")).status_code == 200
            await person.post("/logout")
            assert (await person.get("/errors")).status_code == 303
        bearer = {"authorization": f"Bearer {TOKEN}"}
        async with viewer(page, client=("192.0.2.7", 5), headers=bearer) as script:
            assert (await script.get("/api/v1/stats")).status_code == 200
            script.headers["authorization"] = "Bearer wrong-wrong-wrong-wrong"
            refused = await script.get("/api/v1/stats")
            assert refused.status_code == 401
            assert "this is not the token" in refused.text

    asyncio.run(main())


@pytest.mark.parametrize("target", ["//evil.example", "https://evil.example", "/\\evil.example"])
def test_a_login_leads_to_no_other_site(target: str) -> None:
    async def main() -> None:
        async with viewer(shop(web_token=TOKEN).web()) as person:
            answer = await person.post(f"/login?next={quote(target)}", data={"token": TOKEN})
            assert answer.headers["location"] == "/"

    asyncio.run(main())


@pytest.mark.parametrize("way", ["login", "bearer"])
def test_guesses_of_the_token_are_throttled_by_address(way: str) -> None:
    page = shop(web_token=TOKEN).web()

    async def log_in(token: str, address: str) -> int:
        async with viewer(page, client=(address, 5)) as person:
            return (await person.post("/login", data={"token": token})).status_code

    async def call(token: str, address: str) -> int:
        bearer = {"authorization": f"Bearer {token}"}
        async with viewer(page, client=(address, 5), headers=bearer) as script:
            return (await script.get("/api/v1/stats")).status_code

    async def main() -> None:
        for _ in range(10):
            if way == "login":
                assert await log_in("wrong", "192.0.2.7") == 403
            else:
                assert await call("wrong", "192.0.2.7") == 401
        assert await log_in(TOKEN, "192.0.2.7") == 429
        assert await call(TOKEN, "192.0.2.7") == 429
        assert await log_in(TOKEN, "192.0.2.8") == 303
        assert await call(TOKEN, "192.0.2.8") == 200

    asyncio.run(main())


def test_a_throttled_address_may_guess_again_after_a_minute() -> None:
    now = 1_000_000.0
    sessions = Sessions(TOKEN, clock=lambda: now)
    for _ in range(10):
        assert not sessions.knows("wrong", "192.0.2.7")
    assert sessions.is_throttled("192.0.2.7")
    now += 61
    assert not sessions.is_throttled("192.0.2.7")


def test_failures_of_a_bounded_number_of_addresses_are_kept() -> None:
    sessions = Sessions(TOKEN)
    for number in range(MAX_ADDRESSES + 1):
        for _ in range(10):
            sessions.knows("wrong", f"address {number}")
    throttled = [sessions.is_throttled(f"address {n}") for n in range(MAX_ADDRESSES + 1)]
    assert throttled == [False] + [True] * MAX_ADDRESSES


def test_a_session_outlives_the_throttling_of_its_address() -> None:
    async def main() -> None:
        async with viewer(shop(web_token=TOKEN).web()) as person:
            await person.post("/login", data={"token": TOKEN})
            for _ in range(10):
                await person.post("/login", data={"token": "wrong"})
            assert (await person.post("/login", data={"token": TOKEN})).status_code == 429
            assert (await person.get("/errors")).status_code == 200

    asyncio.run(main())


@pytest.mark.parametrize(
    ("base", "is_secure"), [("http://jobs.internal", False), ("https://jobs.internal", True)]
)
def test_the_cookie_of_a_page_behind_tls_is_sent_by_tls_only(base: str, is_secure: bool) -> None:
    async def main() -> None:
        # The proxy ends TLS, so the page itself is asked by http.
        async with viewer(shop(web_token=TOKEN).web(), base="http://jobs.internal") as person:
            answer = await person.post("/login", data={"token": TOKEN}, headers={"origin": base})
            assert ("Secure" in answer.headers["set-cookie"]) is is_secure

    asyncio.run(main())


def test_a_session_ends_and_cannot_be_forged() -> None:
    now = 1_000_000.0
    sessions = Sessions(TOKEN, clock=lambda: now)
    cookie = sessions.log_in(TOKEN, "192.0.2.7")
    assert cookie is not None
    assert sessions.is_valid(cookie)
    until, _, signature = cookie.partition(".")
    assert not sessions.is_valid(f"{int(until) + 1}.{signature}")
    assert not sessions.is_valid(f"{until}.")
    assert not Sessions("another-token-of-16", clock=lambda: now).is_valid(cookie)
    now += SESSION_SECONDS + 1
    assert not sessions.is_valid(cookie)


def test_a_program_s_own_login_decides_also_by_a_coroutine() -> None:
    async def access(request: Request) -> Access | None:
        name = request.headers.get("x-user", "")
        return Access(who=name, role=Role.OPERATOR) if name else None

    async def main() -> None:
        page = shop(web_token=TOKEN).web(access=access)
        async with viewer(page, client=("192.0.2.7", 5)) as person:
            assert (await person.get("/")).status_code == 403
            answer = await person.get("/", headers={"x-user": "grace"})
            assert answer.status_code == 200
            assert "grace" in answer.text

    asyncio.run(main())


@pytest.mark.parametrize(
    "origin",
    [None, "null", "https://evil.example", "http://127.0.0.1:8080.evil.example", "http://["],
)
def test_a_form_of_another_site_changes_nothing(origin: str | None) -> None:
    async def main() -> None:
        app = shop()
        async with viewer(app.web()) as person:
            del person.headers["origin"]
            headers = {} if origin is None else {"origin": origin}
            for path in ("/actions/pause-queue", "/api/v1/actions/pause-queue", "/logout"):
                answer = await person.post(path, data={"name": "mail"}, headers=headers)
                assert answer.status_code == 403, path
        assert not await app.control.apaused()

    asyncio.run(main())


@pytest.mark.parametrize("mode", ["local", "token", "access"])
@pytest.mark.parametrize(
    ("origin", "is_taken"),
    [(None, True), (HERE, True), ("https://evil.example", False), ("null", False)],
)
def test_a_bearer_does_not_excuse_the_origin_of_another_site(
    mode: str, origin: str | None, is_taken: bool
) -> None:
    async def main() -> None:
        app = shop(web_token=TOKEN) if mode == "token" else shop()
        page = app.web(access=of_role("admin") if mode == "access" else None)
        async with viewer(page, headers={"authorization": f"Bearer {TOKEN}"}) as script:
            del script.headers["origin"]
            headers = {} if origin is None else {"origin": origin}
            path = "/api/v1/actions/pause-queue"
            answer = await script.post(path, json={"name": "mail"}, headers=headers)
            assert answer.status_code == (200 if is_taken else 403)
        assert bool(await app.control.apaused()) is is_taken

    asyncio.run(main())


def test_a_proxy_may_serve_the_page_under_an_origin_of_its_own() -> None:
    async def main() -> None:
        app = shop(web_token=TOKEN)
        page = app.web(origins=["https://jobs.example.org"])
        async with viewer(page) as person:
            person.headers["origin"] = "https://jobs.example.org"
            answer = await person.post("/login", data={"token": TOKEN})
            assert answer.status_code == 303

    asyncio.run(main())


def test_a_page_for_other_hosts_needs_a_login() -> None:
    refuse_open_page("127.0.0.1", has_login=False)
    refuse_open_page("::1", has_login=False)
    refuse_open_page("0.0.0.0", has_login=True)
    for host in ("0.0.0.0", "::", "192.0.2.7", "jobs.internal"):
        with pytest.raises(ConfigError, match="WINDLASS_WEB_TOKEN"):
            refuse_open_page(host, has_login=False)
