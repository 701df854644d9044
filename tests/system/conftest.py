"""Gives every test here PostgreSQL 15 from Debian, with TLS, and a PgBouncer in front of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.store.conftest import prepare_postgres, shared_database
from tests.support.postgres import scratch
from tests.support.postgres.fixtures import migrated_url, postgres_url
from tests.support.postgres.scratch import Scratches
from tests.system.bouncer import PgBouncer
from tests.system.certificates import Certificates, certificates_in
from tests.system.debian import CERTIFIED, Debian, missing, program, remedy

__all__ = ["migrated_url", "postgres_url", "prepare_postgres", "shared_database"]


def pytest_configure() -> None:
    """Refuse to begin without the packages: a test that is skipped is a test that never ran."""
    if packages := missing():
        raise pytest.UsageError(
            f"tests/system needs Debian's packages, and these are missing: {', '.join(packages)}; "
            f"as root: {remedy()}"
        )


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Give the certificates of the server, its clients and an impostor."""
    directory = tmp_path_factory.mktemp("certificates")
    return certificates_in(directory, program("openssl"), client=CERTIFIED)


@pytest.fixture(scope="session")
def debian(certificates: Certificates) -> Iterator[Debian]:
    """Give this process its PostgreSQL 15."""
    with Debian(certificates) as server:
        with server.connection() as db:
            db.execute(f"CREATE ROLE {CERTIFIED} SUPERUSER LOGIN")
        yield server


@pytest.fixture(scope="session")
def bouncer(debian: Debian) -> Iterator[PgBouncer]:
    """Give this process its pooler."""
    with PgBouncer(debian) as pooler:
        yield pooler


@pytest.fixture(scope="session")
def postgres_server(debian: Debian) -> Debian:
    """Let the fixtures that make databases make them in PostgreSQL 15."""
    return debian


@pytest.fixture(scope="session")
def postgres_scratches(debian: Debian) -> Iterator[Scratches]:
    """Give the databases that this process uses again for test after test."""
    with pytest.MonkeyPatch.context() as patch:
        # PostgreSQL 15 knows no digits in groups.
        patch.setattr(scratch, "EVICT", scratch.EVICT.replace("10_000", "10000"))
        scratches = Scratches(debian)
        yield scratches
        scratches.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Give Debian's Chromium."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=str(program("chromium")))
        yield chromium
        chromium.close()
