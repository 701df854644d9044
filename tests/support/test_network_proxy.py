"""A network that can be broken breaks as it is told."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import psycopg
import pytest

from tests.support.network_proxy import Proxy
from tests.support.postgres.cluster import Cluster

SOON = 5.0
NEVER = 0.3


class Echo:
    """A server that sends back what it gets, and knows who is connected."""

    def __init__(self) -> None:
        self.open = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.open += 1
            threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            try:
                while chunk := client.recv(4096):
                    client.sendall(chunk)
            except OSError:
                pass
            self.open -= 1


@pytest.fixture
def echo() -> Iterator[Echo]:
    with closing(Echo()) as echo:
        yield echo


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with Proxy(echo.url) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: Proxy) -> Iterator[socket.socket]:
    with dial(proxy) as client:
        assert said(client, b"hello") == b"hello"
        yield client


def dial(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), SOON)


def said(client: socket.socket, words: bytes) -> bytes:
    client.sendall(words)
    return client.recv(4096)


def is_silent(client: socket.socket) -> bool:
    client.settimeout(NEVER)
    try:
        client.recv(4096)
    except TimeoutError:
        return True
    finally:
        client.settimeout(SOON)
    return False


def until(look: Callable[[], object], what: str) -> None:
    give_up = time.monotonic() + SOON
    while not look():
        assert time.monotonic() < give_up, what
        time.sleep(0.005)


def test_a_connection_is_counted_while_it_is_open(
    proxy: Proxy, echo: Echo, client: socket.socket
) -> None:
    assert (proxy.connections, echo.open) == (1, 1)
    client.close()
    until(lambda: (proxy.connections, echo.open) == (0, 0), "the end of the connection")


def test_much_is_passed_on_unchanged(client: socket.socket) -> None:
    words = bytes(range(256)) * 4096
    threading.Thread(target=client.sendall, args=[words]).start()
    got = b""
    while len(got) < len(words):
        got += client.recv(65_536)
    assert got == words


def test_a_black_hole_swallows_and_closes_nothing(
    proxy: Proxy, echo: Echo, client: socket.socket
) -> None:
    proxy.black_hole()
    client.sendall(b"anybody?")
    assert is_silent(client)
    assert (proxy.connections, echo.open) == (1, 1)


def test_a_black_hole_accepts_and_does_not_answer(proxy: Proxy, echo: Echo) -> None:
    proxy.black_hole()
    with dial(proxy) as client:
        client.sendall(b"anybody?")
        assert is_silent(client)
        assert echo.open == 0


def test_in_a_black_hole_the_server_does_not_hear_of_a_client_that_goes(
    proxy: Proxy, echo: Echo, client: socket.socket
) -> None:
    proxy.black_hole()
    client.close()
    time.sleep(NEVER)
    assert echo.open == 1
    proxy.passing()
    until(lambda: echo.open == 0, "the news of the client's end")


def test_after_a_black_hole_only_untouched_connections_speak(
    proxy: Proxy, client: socket.socket
) -> None:
    with dial(proxy) as quiet:
        assert said(quiet, b"hello") == b"hello"
        proxy.black_hole()
        client.sendall(b"lost")
        assert is_silent(client)
        proxy.passing()
        assert said(quiet, b"still here") == b"still here"
        client.sendall(b"half a message")
        assert is_silent(client)


def test_a_reset_ends_both_sides_hard(proxy: Proxy, echo: Echo, client: socket.socket) -> None:
    proxy.reset()
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    assert proxy.connections == 0
    until(lambda: echo.open == 0, "the end at the server")
    with dial(proxy) as again:
        assert said(again, b"hello") == b"hello"


def test_refusing_new_connections_keeps_open_ones(proxy: Proxy, client: socket.socket) -> None:
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        dial(proxy)
    assert said(client, b"still here") == b"still here"
    proxy.accept()
    with dial(proxy) as again:
        assert said(again, b"hello") == b"hello"


def test_a_delay_holds_bytes_back_each_way(proxy: Proxy, client: socket.socket) -> None:
    proxy.delay(0.1)
    begun = time.monotonic()
    assert said(client, b"slow") == b"slow"
    assert time.monotonic() - begun >= 0.2


def test_delayed_bytes_are_passed_on_when_the_connection_is_restored(
    proxy: Proxy, client: socket.socket
) -> None:
    proxy.delay(3600)
    client.sendall(b"late")
    assert is_silent(client)
    proxy.passing()
    assert client.recv(4096) == b"late"


def test_a_server_that_is_down_is_a_reset() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"tcp://127.0.0.1:{nobody.getsockname()[1]}"
        with Proxy(url) as proxy, pytest.raises(ConnectionResetError), dial(proxy) as client:
            client.recv(1)


def test_leaving_the_proxy_leaves_no_thread_and_no_connection(echo: Echo) -> None:
    before = threading.active_count()
    with Proxy(echo.url) as proxy, dial(proxy) as client:
        assert said(client, b"hello") == b"hello"
        proxy.black_hole()
    until(lambda: echo.open == 0, "the end at the server")
    until(lambda: threading.active_count() <= before, "the end of the threads")


def test_postgres_speaks_through_it(postgres_server: Cluster) -> None:
    with Proxy(postgres_server.url()) as proxy:
        url = proxy.url(postgres_server.url())
        with psycopg.connect(url) as db:
            assert db.execute("SELECT 1").fetchone() == (1,)
            proxy.reset()
            with pytest.raises(psycopg.OperationalError):
                db.execute("SELECT 1")
        proxy.black_hole()
        with pytest.raises(psycopg.errors.ConnectionTimeout):
            psycopg.connect(url, connect_timeout=2)


def test_one_packet_is_held_back_while_others_pass(proxy: Proxy, client: socket.socket) -> None:
    proxy.hold(b"late")
    client.sendall(b"too late")
    assert proxy.is_holding.wait(SOON)
    assert is_silent(client)
    with dial(proxy) as other:
        assert said(other, b"late as well") == b"late as well"
    proxy.release()
    assert client.recv(4096) == b"too late"


def test_a_packet_that_was_held_back_reaches_the_server_after_its_client_has_gone(
    proxy: Proxy, echo: Echo, client: socket.socket
) -> None:
    proxy.hold(b"late")
    client.sendall(b"late")
    assert proxy.is_holding.wait(SOON)
    client.close()
    assert echo.open == 1
    proxy.release()
    until(lambda: echo.open == 0, "the end of the connection")


def test_the_next_connections_are_reset(proxy: Proxy) -> None:
    proxy.drop(2)
    for _ in range(2):
        with pytest.raises(ConnectionError), dial(proxy) as client:
            said(client, b"hello")
            client.recv(4096)
    with dial(proxy) as client:
        assert said(client, b"hello") == b"hello"
