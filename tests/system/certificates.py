"""Owns certificates that live as long as a test session, made by the openssl command."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

CONFIG = """
[req]
distinguished_name = name
[name]
"""
"""A config of our own, because Debian's makes every certificate one of an authority."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The files of a certificate and its key."""

    certificate: Path
    key: Path


@dataclass(frozen=True, kw_only=True)
class Certificates:
    """An authority with a certificate for each end, and another authority that nobody trusts."""

    ca: Pair
    server: Pair
    client: Pair
    wrong_ca: Pair
    wrong_client: Pair


def certificates_in(directory: Path, openssl: Path, *, client: str) -> Certificates:
    """Make all certificates: the server's is for localhost, the client's for a role."""
    maker = _Maker(directory, openssl)
    ca, wrong_ca = maker.authority("ca"), maker.authority("wrong-ca")
    return Certificates(
        ca=ca,
        server=maker.issued("server", ca, "localhost", "subjectAltName=DNS:localhost"),
        client=maker.issued("client", ca, client, "extendedKeyUsage=clientAuth"),
        wrong_ca=wrong_ca,
        wrong_client=maker.issued("wrong-client", wrong_ca, client, "extendedKeyUsage=clientAuth"),
    )


class _Maker:
    def __init__(self, directory: Path, openssl: Path) -> None:
        self._directory = directory
        self._openssl = openssl
        self._config = directory / "openssl.cnf"
        self._config.write_text(CONFIG)

    def authority(self, name: str) -> Pair:
        """Make an authority, whose certificate it signs itself."""
        is_authority = ["-addext", "basicConstraints=critical,CA:TRUE"]
        may_sign = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
        return self._made(name, name, *is_authority, *may_sign)

    def issued(self, name: str, ca: Pair, subject: str, extension: str) -> Pair:
        """Make a certificate that an authority has signed."""
        by: list[str | Path] = ["-CA", ca.certificate, "-CAkey", ca.key]
        no_authority = ["-addext", "basicConstraints=critical,CA:FALSE"]
        return self._made(name, subject, *by, *no_authority, "-addext", extension)

    def _made(self, name: str, subject: str, *options: str | Path) -> Pair:
        key, certificate = self._directory / f"{name}.key", self._directory / f"{name}.crt"
        command: list[str | Path] = [self._openssl, "req", "-x509", "-config", self._config]
        command += ["-days", "2"]
        command += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        command += ["-subj", f"/CN={subject}", "-keyout", key, "-out", certificate, *options]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        # libpq refuses a key that others could read.
        key.chmod(0o600)
        return Pair(certificate=certificate, key=key)
