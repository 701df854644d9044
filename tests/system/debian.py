"""Owns what Debian's packages bring: where their programs are, and PostgreSQL 15 with TLS."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlencode

from tests.support.postgres.server import FAST, Server, ServerFailed
from tests.system.certificates import Certificates

VERSION = 15
PLACES = (f"/usr/lib/postgresql/{VERSION}/bin", "/usr/sbin", "/usr/bin")
"""Where Debian puts programs; not all of it is on the path of everybody."""
PACKAGES: Mapping[str, str] = MappingProxyType(
    {
        f"postgresql-{VERSION}": "postgres",
        "pgbouncer": "pgbouncer",
        "pgpool2": "pgpool",
        "redis-server": "redis-server",
        "openssl": "openssl",
        "prometheus": "promtool",
        "nodejs": "node",
        "npm": "npm",
        "chromium": "chromium",
    }
)
"""The packages that are needed, each with the program that it is needed for."""
CERTIFIED = "certified"
"""A role that is let in by its certificate, and by nothing else."""
ACCESS = f"""
hostssl all {CERTIFIED} 127.0.0.1/32 cert
host    all {CERTIFIED} 127.0.0.1/32 reject
local   all all                      trust
host    all all         127.0.0.1/32 trust
"""


def program(name: str) -> Path:
    """Return where a program is.

    Raises:
        ServerFailed: it is not installed.
    """
    places = os.pathsep.join([*PLACES, os.environ.get("PATH", os.defpath)])
    found = shutil.which(name, path=places)
    if found is None:
        raise ServerFailed(f"there is no {name}: {remedy()}")
    return Path(found)


def missing() -> list[str]:
    """Return the packages whose programs are not there."""
    places = os.pathsep.join([*PLACES, os.environ.get("PATH", os.defpath)])
    return [name for name, binary in PACKAGES.items() if not shutil.which(binary, path=places)]


def remedy() -> str:
    """Say how the packages are installed that are missing."""
    return f"apt-get install --no-install-recommends {' '.join(missing())}"


class Debian(Server):
    """PostgreSQL 15 as Debian builds it, which speaks TLS with certificates of our own."""

    def __init__(self, certificates: Certificates) -> None:
        super().__init__(version=VERSION)
        self._certificates = certificates

    def tls_url(
        self,
        database: str = "postgres",
        user: str = "postgres",
        *,
        host: str = "localhost",
        port: int | None = None,
        **options: str | Path,
    ) -> str:
        """Return the URL of a database by TLS, to a server that must prove its name."""
        given = {"sslmode": "verify-full", "sslrootcert": self._certificates.ca.certificate}
        query = urlencode({**given, **options})
        return f"postgresql://{user}@{host}:{port or self.port}/{database}?{query}"

    def _binaries(self) -> Path:
        return program("postgres").parent

    def _initdb(self, binaries: Path) -> None:
        # Its settings go into the file, because initdb takes none before version 16.
        super()._initdb(binaries)
        settings = {
            **FAST,
            "ssl": "on",
            "ssl_ca_file": "ca.crt",
            "ssl_cert_file": "server.crt",
            "ssl_key_file": "server.key",
        }
        with (self._data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
        (self._data / "pg_hba.conf").write_text(ACCESS)
        server = self._certificates.server
        self._give(self._certificates.ca.certificate, "ca.crt")
        self._give(server.certificate, "server.crt")
        self._give(server.key, "server.key")

    def _give(self, source: Path, name: str) -> None:
        """Copy a file into the server's directory, for nobody but the server."""
        copy = self._data / name
        copy.touch(mode=0o600)
        copy.write_bytes(source.read_bytes())
        if self._nobody is not None:
            os.chown(copy, self._nobody.pw_uid, self._nobody.pw_gid)
