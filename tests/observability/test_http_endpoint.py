"""An endpoint tells metrics to who may have them, and health to everybody; nothing wears it out."""

from __future__ import annotations

import errno
import hmac
import http.client
import socket
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from windlass.observability import http_endpoint as endpoint
from windlass.observability.http_endpoint import Access, Endpoint, Health

TOKEN = "correct-horse-battery"
GOOD = Health(live=True, ready=True)


@contextmanager
def served(
    access: Access | None = None,
    *,
    metrics: Callable[[], str] = lambda: "windlass_up 1\n",
    health: Callable[[], Health] = lambda: GOOD,
) -> Iterator[Endpoint]:
    made = Endpoint(access or Access(port=21_000), metrics=metrics, health=health)
    made.start()
    try:
        yield made
    finally:
        made.stop()


def get(
    served: Endpoint, path: str, *, method: str = "GET", **headers: str
) -> tuple[int, str, http.client.HTTPResponse]:
    host, _, port = served.address.rpartition(":")
    connection = http.client.HTTPConnection(host.replace("0.0.0.0", "127.0.0.1"), int(port), 5)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body, answer


def test_metrics_are_served_to_this_host_without_credentials() -> None:
    with served() as it:
        status, body, answer = get(it, "/metrics")
    assert (status, body) == (200, "windlass_up 1\n")
    assert answer.getheader("Content-Type") == "text/plain; version=0.0.4; charset=utf-8"


@pytest.mark.parametrize(
    ("health", "live", "ready"),
    [
        (Health(live=True, ready=True), 200, 200),
        (Health(live=True, ready=False), 200, 503),
        (Health(live=False, ready=False), 503, 503),
    ],
)
def test_probes_say_by_their_status_how_it_is(health: Health, live: int, ready: int) -> None:
    with served(health=lambda: health) as it:
        assert get(it, "/health/live")[0] == live
        assert get(it, "/health/ready")[0] == ready
        status, body, _ = get(it, "/health")
    assert status == max(live, ready)
    told = f'{{"live": {health.live}, "ready": {health.ready}}}\n'.lower()
    assert body == told, "nothing but the state is told"


def basic(password: str, user: str = "prometheus") -> str:
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


@pytest.mark.parametrize(
    "credentials",
    [
        "",
        "Bearer",
        "Bearer wrong",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Token {TOKEN}",
        TOKEN,
        basic(TOKEN[::-1]),
        basic("", TOKEN),
        "Basic ???",
        "Basic",
        "Bearer \xff\xfe",
    ],
)
def test_metrics_with_a_token_are_refused_to_clients_without_it(credentials: str) -> None:
    with served(Access(port=21_000, token=TOKEN)) as it:
        headers = {"Authorization": credentials} if credentials else {}
        status, body, answer = get(it, "/metrics", **headers)
        assert get(it, "/health/ready")[0] == 200, "probes need none"
    assert status == 401
    assert "windlass_up" not in body
    assert TOKEN not in body
    assert "Bearer" in (answer.getheader("WWW-Authenticate") or "")


@pytest.mark.parametrize("credentials", [f"Bearer {TOKEN}", f"bearer  {TOKEN} ", basic(TOKEN)])
def test_clients_with_the_token_get_metrics_by_bearer_and_by_basic(credentials: str) -> None:
    with served(Access(port=21_000, token=TOKEN)) as it:
        assert get(it, "/metrics", Authorization=credentials)[0] == 200


def test_the_token_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", compare)
    assert Access(token=TOKEN).admits(f"Bearer {TOKEN}")
    assert not Access(token=TOKEN).admits("")
    assert len(compared) == 2, "every decision is left to it"


def test_metrics_are_closed_beyond_this_host_unless_somebody_has_said_how() -> None:
    with served(Access(host="0.0.0.0", port=21_000)) as it:
        status, body, _ = get(it, "/metrics")
        assert get(it, "/health/live")[0] == 200, "probes are served all the same"
    assert status == 403
    assert "WINDLASS_METRICS_TOKEN" in body
    with served(Access(host="0.0.0.0", port=21_000, insecure=True)) as it:
        assert get(it, "/metrics")[0] == 200
    with served(Access(host="0.0.0.0", port=21_000, token=TOKEN)) as it:
        assert get(it, "/metrics")[0] == 401
        assert get(it, "/metrics", Authorization=f"Bearer {TOKEN}")[0] == 200


STRANGERS = [
    "evil.example",
    "evil.example:9090",
    "127.0.0.1.evil.example",
    "localhost.evil.example:9090",
    "[::1].evil.example",
    "[::1",
    "2130706433.example",
    "@",
    "127.0.0.1@evil.example",
]


@pytest.mark.parametrize("host", STRANGERS)
def test_a_web_page_whose_name_leads_here_cannot_read_the_metrics(host: str) -> None:
    """Prevents a browser on this host from telling them to a page that rebinds its own name."""
    with served() as it:
        status, body, _ = get(it, "/metrics", Host=host)
        assert get(it, "/health/ready", Host=host)[0] == 200, "probes are for everybody"
    assert status == 403
    assert "WINDLASS_METRICS_TOKEN" in body
    assert "windlass_up" not in body


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:9090",
        "localhost:1",
        "LOCALHOST",
        "localhost.",
        "[::1]:9090",
        "10.2.3.4:9090",
        " 127.0.0.1 ",
        "",
    ],
)
def test_requests_for_this_host_get_metrics_through_tunnels_too(host: str) -> None:
    with served() as it:
        assert get(it, "/metrics", Host=host)[0] == 200


def test_requests_with_a_token_or_to_an_open_endpoint_may_use_any_host_name() -> None:
    """Prevents a proxy, and a scrape by name, from being taken for a web page."""
    with served(Access(port=21_000, token=TOKEN)) as it:
        status, *_ = get(it, "/metrics", Host="worker-1", Authorization=f"Bearer {TOKEN}")
        assert status == 200
    for host in ("127.0.0.1", "0.0.0.0"):
        with served(Access(host=host, port=21_000, insecure=True)) as it:
            assert get(it, "/metrics", Host="worker-1:9090")[0] == 200


def test_an_old_client_that_says_no_host_is_served() -> None:
    with served() as it:
        host, _, port = it.address.rpartition(":")
        with socket.create_connection((host, int(port)), 5) as asking:
            asking.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert asking.makefile("rb").readline().split()[1] == b"200"


def test_the_next_port_is_taken_if_the_wanted_one_is_not_free(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with served() as one, served(Access(port=int(one.address.rpartition(":")[2]))) as other:
        port, moved = one.address.rpartition(":")[2], other.address
        assert one.address != moved
        assert get(one, "/metrics")[0] == get(other, "/metrics")[0] == 200
        other.tell()
    (warning,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert f"metrics.moved address={moved}" in warning
    assert f"port {port} is in use" in warning
    assert "set WINDLASS_METRICS_PORT" in warning


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address"),
        socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
    ],
)
def test_an_address_that_is_not_of_this_host_is_reported_with_the_setting_of_the_host(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(socket, "create_server", refuse)
    with served(Access(host="192.0.2.1")) as it:
        it.tell()
    (warning,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert f'metrics.not_served problem="192.0.2.1:19463: {error.strerror}"' in warning
    assert "WINDLASS_METRICS_HOST" in warning
    assert "WINDLASS_METRICS_PORT" not in warning


def test_the_endpoint_is_left_out_if_no_port_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    with served() as one:
        monkeypatch.setattr(endpoint, "MAX_PORTS_TRIED", 1)
        with served(Access(port=int(one.address.rpartition(":")[2]))) as other:
            assert other.address == ""


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/metrics/../etc/passwd", 404),
        ("GET", "/metrics?name[]=x", 200),
        ("HEAD", "/metrics", 200),
        ("POST", "/metrics", 405),
        ("DELETE", "/health", 405),
    ],
)
def test_nothing_else_can_be_had(method: str, path: str, status: int) -> None:
    with served() as it:
        assert get(it, path, method=method)[0] == status


def test_a_page_that_cannot_be_made_is_an_error_that_tells_nothing() -> None:
    def fail() -> str:
        raise ValueError("postgresql://u:secret@h")

    with served(metrics=fail) as it:
        status, body, _ = get(it, "/metrics")
        assert get(it, "/health/live")[0] == 200, "and it goes on"
    assert (status, body) == (500, "failed\n")


def connected(it: Endpoint) -> socket.socket:
    host, _, port = it.address.rpartition(":")
    return socket.create_connection((host, int(port)), 5)


def test_a_request_that_is_too_long_is_refused() -> None:
    with served() as it, connected(it) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 431 ")


def test_a_slow_client_is_disconnected_and_delays_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(endpoint, "_REQUEST_SECONDS", 0.5)
    with served() as it, connected(it) as slow:
        slow.sendall(b"GET /metrics HT")
        assert get(it, "/metrics")[0] == 200
        began = time.monotonic()
        assert slow.recv(100) == b"", "it is hung up on without an answer"
        assert time.monotonic() - began < 30


HUGE = "x" * 30_000_000
"""A page that fits into no buffer on its way."""


def in_use(it: Endpoint) -> int:
    """Return how many sockets of this process are connected to it, at its end."""
    port = int(it.address.rpartition(":")[2])
    lines = Path("/proc/self/net/tcp").read_text("ascii").splitlines()[1:]
    rows = [line.split() for line in lines]
    return sum(row[1].endswith(f":{port:04X}") and row[3] == "01" for row in rows)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_probes_are_answered_however_many_connect_and_say_nothing() -> None:
    with served() as it, ExitStack() as stack:
        silent = [stack.enter_context(connected(it)) for _ in range(endpoint._MAX_CONNECTIONS + 8)]
        for _ in range(3):
            assert get(it, "/health/live")[0] == 200
        assert silent[0].recv(1) == b"", "the oldest is hung up on"
        silent[-1].sendall(b"GET /health/ready HTTP/1.1\r\n\r\n")
        assert silent[-1].recv(20).startswith(b"HTTP/1.1 200"), "a younger one is still served"


def test_requests_beyond_the_limit_of_connections_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(endpoint, "_MAX_CONNECTIONS", 1)
    with served(metrics=lambda: HUGE) as it, connected(it) as one:
        one.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert one.recv(20).startswith(b"HTTP/1.1 200")
        assert get(it, "/health/live")[0] == 503
        while one.recv(1_000_000):
            pass
        until(lambda: get(it, "/health/live")[0] == 200)


@pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="Linux says who is connected")
def test_a_client_that_does_not_read_is_disconnected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(endpoint, "_REQUEST_SECONDS", 0.5)
    with served(metrics=lambda: HUGE) as it, connected(it) as deaf:
        deaf.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        until(lambda: in_use(it) == 1)
        until(lambda: in_use(it) == 0)
