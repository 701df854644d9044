"""Owns the ways in which clients find the primary, each a row of docs/failover.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from tests.support.network_proxy import Proxy
from tests.system.bouncer import DEFAULT_LOGIN_RETRY, PgBouncer
from tests.system.pgpool import Pgpool
from tests.system.replication import Copy, Primary, either


class Way(NamedTuple):
    """How clients find the primary, and how it comes that this is another server."""

    row: str
    """How the page's table calls it."""
    url: str
    fail_over: Callable[[], None]
    listen_url: str = ""


Ways = Callable[[Primary, Copy, str], AbstractContextManager[Way]]


def fail_over(primary: Primary, standby: Copy) -> None:
    """Kill the primary as a power cut does, and let the standby take its place."""
    primary.kill()
    standby.promote()


@contextmanager
def several_hosts(primary: Primary, standby: Copy, database: str) -> Iterator[Way]:
    """A URL with both hosts; the primary dies."""
    url = either(database, primary.port, standby.port)
    yield Way("both hosts in the URL, primary killed", url, lambda: fail_over(primary, standby))


@contextmanager
def silent_primary(primary: Primary, standby: Copy, database: str) -> Iterator[Way]:
    """A URL with both hosts; the primary's network swallows everything, and nobody is told."""
    with Proxy(primary.url()) as proxy:

        def cut_off() -> None:
            proxy.black_hole()
            standby.promote()

        url = f"{either(database, proxy.port, standby.port)}&connect_timeout=2"
        yield Way("both hosts in the URL, and a primary whose packets are dropped", url, cut_off)


@contextmanager
def moving_endpoint(primary: Primary, standby: Copy, database: str) -> Iterator[Way]:
    """An address that leads to the primary, as of a managed service, a proxy or a virtual IP."""
    row = "one address that moves (a proxy, a virtual IP, a managed endpoint), primary killed"
    with Proxy(primary.url()) as proxy:

        def move() -> None:
            fail_over(primary, standby)
            proxy.lead_to(standby.url())

        yield Way(row, proxy.url(primary.url(database.removeprefix("/"))), move)


@contextmanager
def pgbouncer(primary: Primary, standby: Copy, database: str) -> Iterator[Way]:
    """PgBouncer as the page configures it."""
    row = "PgBouncer with `server_login_retry = 1`, which is given the new address"
    with PgBouncer(primary) as bouncer:
        yield _behind(bouncer, row, primary, standby, database)


@contextmanager
def pgbouncer_by_default(primary: Primary, standby: Copy, database: str) -> Iterator[Way]:
    """PgBouncer that nobody configured for a failover."""
    with PgBouncer(primary, login_retry=DEFAULT_LOGIN_RETRY) as bouncer:
        yield _behind(bouncer, "PgBouncer with its default of 15 s", primary, standby, database)


def _behind(bouncer: PgBouncer, row: str, primary: Primary, standby: Copy, database: str) -> Way:
    """Return the way by PgBouncer; an operator, or Patroni, gives it the new address."""

    def tell() -> None:
        fail_over(primary, standby)
        bouncer.lead_to(standby)

    url = bouncer.through(primary.url(database.removeprefix("/")))
    return Way(row, url, tell, either(database, primary.port, standby.port))


@contextmanager
def pgpool(primary: Primary, standby: Copy, database: str) -> Iterator[Way]:
    """A pgpool-II before both, which finds out by itself which server is promoted."""
    with Pgpool(primary, standby) as pool:

        def leave() -> None:
            assert pool.selects()[standby.port] == 0, "pgpool asks a server that cannot write"
            fail_over(primary, standby)

        url = pool.through(primary.url(database.removeprefix("/")))
        listen_url = either(database, primary.port, standby.port)
        yield Way("pgpool-II, primary killed", url, leave, listen_url)


WAYS: tuple[Ways, ...] = (
    several_hosts,
    silent_primary,
    moving_endpoint,
    pgbouncer,
    pgbouncer_by_default,
    pgpool,
)
