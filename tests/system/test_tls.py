"""TLS: what the URL demands holds for every connection of the store, and nothing is sent else."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.app_on_store import in_state, serving, until
from tests.support.clocked_stores import opened
from tests.system.certificates import Certificates
from tests.system.debian import CERTIFIED, Debian
from windlass import State, Windlass
from windlass.app.enqueueing.id_generator import IdGenerator
from windlass.core.claims.lanes import Ask, Claim
from windlass.core.errors import StoreUnavailable
from windlass.core.jobs.job import Lane, NewJob
from windlass.core.workers import WorkerInfo, WorkerPulse
from windlass.store.postgres import PostgresStore

PATIENCE = timedelta(seconds=10)
BOUND = 5.0
"""Seconds within which a refusal is told: nobody waits for a certificate to get better."""
NAMES = ("enqueue", "enqueue_blocking", "heartbeat", "register", "claim", "findings")
CONNECTIONS = """
SELECT a.query, coalesce(s.ssl, false) AS ssl, s.client_dn, a.usename
FROM pg_stat_activity a LEFT JOIN pg_stat_ssl s USING (pid)
WHERE a.application_name = %s AND (NOT %s OR a.wait_event_type = 'Lock')
"""
SSL_REQUEST = struct.pack("!ii", 8, 80_877_103)
"""How a client begins who will not say a word before it is encrypted."""


def new_job() -> NewJob:
    return NewJob(id=IdGenerator().next(), kind="work", payload=b"{}")


def somebody() -> WorkerInfo:
    return WorkerInfo(id="w", name="w", host="h", pid=1, release="1", lease=PATIENCE, slots=1)


async def do(store: PostgresStore, name: str) -> object:
    """Do something that needs a connection of the kind that the name stands for."""
    ask = Ask(lane=Lane("default", "work"), count=1)
    errands: dict[str, Callable[[], Awaitable[object]]] = {
        "enqueue": lambda: store.enqueue([new_job()]),
        "enqueue_blocking": lambda: asyncio.to_thread(
            store.enqueue_blocking, [new_job()], PATIENCE
        ),
        "heartbeat": lambda: asyncio.to_thread(store.heartbeat, "w", WorkerPulse(), PATIENCE),
        "register": lambda: store.register(somebody()),
        "claim": lambda: store.claim(Claim(asks=(ask,)), worker="w", token=1),
        "findings": store.findings,
    }
    return await errands[name]()


async def listen(store: PostgresStore) -> None:
    """Wait until the store hears."""
    await store.register(somebody())
    await until(lambda: store.listening)


def database_of(url: str) -> str:
    return urlsplit(url).path.removeprefix("/")


def connections(
    debian: Debian, application: str, *, waiting: bool = False
) -> list[tuple[Any, ...]]:
    """Return the connections of an application, or those of them that wait for a lock."""
    with debian.connection() as db:
        return db.execute(CONNECTIONS, [application, waiting]).fetchall()


def test_every_connection_is_encrypted(debian: Debian, migrated_url: str) -> None:
    url = debian.tls_url(database_of(migrated_url), application_name="encrypted")

    async def work() -> None:
        async with opened(url) as store:
            for name in NAMES:
                await do(store, name)
            await listen(store)
            found = connections(debian, "encrypted")
            # Two pools, the hot line, the chores, the heart and the ear.
            assert len(found) == 6, found
            assert any("LISTEN" in query for query, *_ in found)
            assert [query for query, ssl, *_ in found if not ssl] == []

    asyncio.run(work())


@pytest.mark.parametrize("name", NAMES)
def test_a_server_of_the_wrong_authority_is_refused(
    name: str, debian: Debian, certificates: Certificates, migrated_url: str
) -> None:
    wrong = certificates.wrong_ca.certificate
    url = debian.tls_url(database_of(migrated_url), sslrootcert=wrong)
    assert "certificate verify failed" in refusal(url, name)


@pytest.mark.parametrize("name", NAMES)
def test_a_server_of_another_name_is_refused(name: str, debian: Debian, migrated_url: str) -> None:
    url = debian.tls_url(database_of(migrated_url), host="127.0.0.1")
    assert 'does not match host name "127.0.0.1"' in refusal(url, name)


def refusal(url: str, name: str) -> str:
    """Return what is told when an errand is refused, as it should be and soon."""

    async def work() -> str:
        async with opened(url) as store:
            began = time.monotonic()
            with pytest.raises(StoreUnavailable) as refused:
                await do(store, name)
            assert time.monotonic() - began < BOUND
            assert store.location in str(refused.value)
            return str(refused.value)

    return asyncio.run(work())


def test_a_refused_listener_is_reported_and_jobs_still_run(
    debian: Debian,
    certificates: Certificates,
    migrated_url: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Any,
) -> None:
    monkeypatch.chdir(tmp_path)
    database = database_of(migrated_url)
    wrong = certificates.wrong_ca.certificate
    listen_url = debian.tls_url(database, sslrootcert=wrong, application_name="refused")
    app = Windlass(debian.tls_url(database), listen_url=listen_url)

    @app.job
    async def work() -> int:
        return 7

    async def run() -> None:
        async with serving(app):
            handle = await work.aenqueue()
            await in_state(handle, State.COMPLETED)
            assert not app.store.listening
            (finding,) = await app.store.findings()
            assert "notifications do not arrive" in finding.problem
            assert connections(debian, "refused") == []
        await app.aclose()

    asyncio.run(run())


def test_a_client_certificate_is_shown_by_every_connection(
    debian: Debian, certificates: Certificates, migrated_url: str
) -> None:
    url = debian.tls_url(
        database_of(migrated_url),
        CERTIFIED,
        sslcert=certificates.client.certificate,
        sslkey=certificates.client.key,
        application_name="certified",
    )

    async def work() -> None:
        async with opened(url) as store:
            for name in NAMES:
                await do(store, name)
            await listen(store)
            found = connections(debian, "certified")
            assert len(found) == 6, found
            assert {(dn, user) for *_, dn, user in found} == {(f"/CN={CERTIFIED}", CERTIFIED)}

    asyncio.run(work())


@pytest.mark.parametrize("name", NAMES)
def test_a_client_without_a_certificate_gets_an_error_that_names_it(
    name: str, debian: Debian, migrated_url: str
) -> None:
    told = refusal(debian.tls_url(database_of(migrated_url), CERTIFIED), name)
    assert "requires a valid client certificate" in told


@pytest.mark.parametrize("name", NAMES)
def test_a_client_of_the_wrong_authority_is_refused(
    name: str, debian: Debian, certificates: Certificates, migrated_url: str
) -> None:
    forged = certificates.wrong_client
    url = debian.tls_url(
        database_of(migrated_url), CERTIFIED, sslcert=forged.certificate, sslkey=forged.key
    )
    # What it is told depends on whether the server hangs up before it has said why.
    assert refusal(url, name)


def test_a_cancelled_call_is_cancelled_at_the_server_without_a_word_in_the_clear(
    debian: Debian, migrated_url: str
) -> None:
    """The older way to cancel shows the key of the session to whoever listens in."""
    database = database_of(migrated_url)

    async def work() -> None:
        openings: list[bytes] = []
        async with tapped(debian.port, openings) as port:
            url = debian.tls_url(database, application_name="cancelled", port=port)
            with debian.connection(database) as db:
                async with opened(url) as store:
                    with db.transaction():
                        db.execute("LOCK TABLE windlass.jobs IN ACCESS EXCLUSIVE MODE")
                        call = asyncio.create_task(store.enqueue([new_job()]))
                        await until(lambda: connections(debian, "cancelled", waiting=True))
                        call.cancel()
                        await until(lambda: not connections(debian, "cancelled"))
        assert len(openings) > 1
        assert set(openings) == {SSL_REQUEST}

    asyncio.run(work())


@asynccontextmanager
async def tapped(server: int, openings: list[bytes]) -> AsyncIterator[int]:
    """Stand between clients and a server, and take down the first words of each client."""
    links: set[asyncio.Task[None]] = set()

    async def link(client: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server)
        try:
            opening = await client.readexactly(len(SSL_REQUEST))
            openings.append(opening)
            writer.write(opening)
            await asyncio.gather(relay(client, writer), relay(reader, answer))
        finally:
            writer.close()
            answer.close()

    def accept(client: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        links.add(asyncio.create_task(link(client, answer)))

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as tap:
        try:
            yield tap.sockets[0].getsockname()[1]
        finally:
            for task in links:
                task.cancel()
            # Whatever became of a link, its two ends know.
            await asyncio.gather(*links, return_exceptions=True)


async def relay(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(65_536):
        sink.write(data)
        await sink.drain()
    sink.close()


def test_neither_keys_nor_passwords_are_shown(
    debian: Debian, certificates: Certificates, migrated_url: str
) -> None:
    url = debian.tls_url(
        database_of(migrated_url), sslkey=certificates.client.key, password="hush", sslpassword="hu"
    )
    shown = PostgresStore(url).location
    assert "hu" not in shown.replace(database_of(migrated_url), "")
    assert str(certificates.client.key) not in shown
