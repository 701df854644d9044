"""Owns the URL of a Redis: its servers, its login, and its options."""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar
from urllib.parse import unquote

from msgspec import Struct

from windlass.core.errors import ConfigError
from windlass.store.userinfo import check_userinfo, unescaped

T = TypeVar("T")
_PORT = 6379
_SENTINEL_PORT = 26379
_SLOTS = 16384
_MAX_PREFIX = 100
_MAX_SECONDS = 3600.0
_PREFIX = re.compile(r"[^{}\s\x00-\x1f]+")
_SCHEMES = {
    "redis": (False, ""),
    "rediss": (True, ""),
    "valkey": (False, ""),
    "valkeys": (True, ""),
    "unix": (False, "unix"),
    "redis+unix": (False, "unix"),
    "valkey+unix": (False, "unix"),
    "redis+sentinel": (False, "sentinel"),
    "rediss+sentinel": (True, "sentinel"),
    "valkey+sentinel": (False, "sentinel"),
    "valkeys+sentinel": (True, "sentinel"),
    "redis+cluster": (False, "cluster"),
    "rediss+cluster": (True, "cluster"),
    "valkey+cluster": (False, "cluster"),
    "valkeys+cluster": (True, "cluster"),
}
"""For each scheme whether it speaks TLS, and what kind of servers it names."""
_TLS_OPTIONS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs")
_OPTIONS = ("prefix", "db", "wait_replicas", "timeout", "max_connections", *_TLS_OPTIONS)
_EXAMPLES = (
    "redis://user:password@host:6379/0, rediss://host, unix:///run/redis.sock, "
    "redis+sentinel://host1,host2/master-name or redis+cluster://host1,host2"
)


class Endpoint(NamedTuple):
    """Where a server listens: a host and a port, or the path of a socket and 0."""

    host: str
    port: int

    def __str__(self) -> str:
        if not self.port:
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class TlsOptions(Struct, frozen=True, kw_only=True):
    """How server and client authenticate with TLS."""

    ca_certs: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    verify: bool = True


@dataclass(frozen=True, kw_only=True)
class RedisAddress:
    """The parsed contents of a URL."""

    scheme: str
    hosts: tuple[Endpoint, ...]
    db: int = 0
    user: str | None = None
    password: str | None = None
    tls: TlsOptions | None = None
    prefix: str = "windlass"
    master_name: str | None = None
    is_cluster: bool = False
    wait_replicas: int = 0
    timeout: float = 15.0
    max_connections: int = 20

    def __repr__(self) -> str:
        return f"RedisAddress({self.location!r})"

    def of_space(self, space: str) -> RedisAddress:
        """Return the address of a space: other keys, which may be on another node of a cluster."""
        return replace(self, prefix=f"{self.prefix}:{space}") if space else self

    @property
    def namespace(self) -> bytes:
        """The prefix of every key: a hash tag, so that all of them are in one slot."""
        return b"{%b}:" % self.prefix.encode()

    @property
    def slot(self) -> int:
        """The slot of a cluster that has all keys."""
        return binascii.crc_hqx(self.prefix.encode(), 0) % _SLOTS

    @property
    def location(self) -> str:
        """A readable location of the jobs, without secrets."""
        user = f"{self.user}@" if self.user else ""
        hosts = ",".join(map(str, self.hosts))
        name = f"/{self.master_name}" if self.master_name else ""
        db = f"/{self.db}" if self.db else ""
        return f"{self.scheme}://{user}{hosts}{name}{db} (prefix {self.prefix})"


def is_redis(url: str) -> bool:
    """Return whether a URL has a scheme that names a Redis or Valkey."""
    return url.partition("://")[0].lower() in _SCHEMES


def parse(url: str) -> RedisAddress:
    """Read a URL.

    Raises:
        ConfigError: it is invalid; the message names the part, never the password.
    """
    scheme = url.partition("://")[0].lower()
    if scheme not in _SCHEMES:
        raise ConfigError(f"a Redis URL must begin with redis:// or the like; use {_EXAMPLES}")
    check_userinfo(url, scheme)
    has_tls, kind = _SCHEMES[scheme]
    place, _, query = url.partition("://")[2].partition("?")
    if "@" in query:  # Not in a value either: it may be the rest of a password.
        raise unescaped("?", scheme)
    authority, slash, path = place.partition("/")
    userinfo, _, hosts = authority.rpartition("@")
    user, _, password = userinfo.partition(":")
    options = _options(query, scheme)
    return RedisAddress(
        scheme=scheme,
        hosts=_socket(hosts, slash + path, scheme) if kind == "unix" else _hosts(hosts, scheme),
        user=unquote(user) or None,
        password=unquote(password) if userinfo else None,
        tls=_tls(options, scheme, has_tls),
        is_cluster=kind == "cluster",
        **_place(path, kind, options, scheme),  # type: ignore[arg-type]
        **_numbers(options),  # type: ignore[arg-type]
    )


def _options(query: str, scheme: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for part in query.split("&") if query else ():
        name, equals, value = part.partition("=")
        # Not shown: it may be the rest of a password that has a `?` in it.
        if name not in _OPTIONS:
            known = name if re.fullmatch(r"[a-z_]{1,30}", name) and equals else "another one"
            raise ConfigError(
                f"the options of a {scheme}:// URL must be among {', '.join(_OPTIONS)}, got "
                f"{known}; remove it"
            )
        if name in options:
            raise ConfigError(f"{name} must be given once, got it twice; remove one")
        options[name] = unquote(value)
    return options


def _hosts(text: str, scheme: str) -> tuple[Endpoint, ...]:
    usual = _SENTINEL_PORT if "sentinel" in scheme else _PORT
    hosts = tuple(_host(each, usual) for each in text.split(","))
    if len(hosts) > 1 and "+" not in scheme:
        raise ConfigError(
            f"a {scheme}:// URL must name one host, got {len(hosts)}; with Sentinel use "
            f"{scheme}+sentinel://, with Redis Cluster {scheme}+cluster://"
        )
    return hosts


def _host(text: str, usual: int) -> Endpoint:
    # Numbers, as `check_userinfo` has seen.
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, ""
    number = int(port) if port else usual
    if not 0 < number < 65536:
        raise ConfigError(f"the port must be from 1 to 65535, got {number}; check the URL")
    return Endpoint(unquote(host.removeprefix("[").removesuffix("]")) or "localhost", number)


def _socket(hosts: str, path: str, scheme: str) -> tuple[Endpoint, ...]:
    if hosts or not path.strip("/"):
        raise ConfigError(
            f"a {scheme}:// URL must name a socket by its absolute path; use "
            f"{scheme}:///run/redis.sock"
        )
    return (Endpoint(unquote(path), 0),)


def _place(path: str, kind: str, options: Mapping[str, str], scheme: str) -> dict[str, object]:
    """Return the database, and with Sentinel the master's name."""
    name, db = None, "" if kind == "unix" else path
    if kind == "sentinel":
        first, _, db = path.partition("/")
        name = unquote(first)
        if not name:
            raise ConfigError(
                f"a {scheme}:// URL must name the master; use {scheme}://host1,host2/name"
            )
    if db and options.get("db", db) != db:
        raise ConfigError("db must be given once, got two; remove the one behind the '?'")
    db = db or options.get("db", "")
    number = 0
    if db:
        if not (db.isascii() and db.isdigit() and len(db) < 7):
            raise ConfigError(
                "the database of a Redis URL must be a number (not shown: it may be part of a "
                "password); use redis://host:6379/0"
            )
        number = int(db)
    if number and kind == "cluster":
        raise ConfigError(f"the database of a cluster must be 0, got {number}; remove it")
    return {"master_name": name, "db": number}


def _tls(options: Mapping[str, str], scheme: str, has_tls: bool) -> TlsOptions | None:
    if not has_tls:
        for name in filter(options.__contains__, _TLS_OPTIONS):
            raise ConfigError(
                f"{name} must be used with TLS, got a {scheme}:// URL; use rediss:// or "
                "valkeys://, or remove it"
            )
        return None
    reqs = options.get("ssl_cert_reqs", "required")
    if reqs not in ("required", "none"):
        raise ConfigError(f"ssl_cert_reqs must be required or none, got {reqs!r}; remove it")
    if "ssl_keyfile" in options and "ssl_certfile" not in options:
        raise ConfigError(
            "ssl_certfile must be given with ssl_keyfile, got none; add the certificate's path"
        )
    return TlsOptions(
        ca_certs=options.get("ssl_ca_certs"),
        certfile=options.get("ssl_certfile"),
        keyfile=options.get("ssl_keyfile"),
        verify=reqs == "required",
    )


def _numbers(options: Mapping[str, str]) -> dict[str, object]:
    numbers: dict[str, object] = {}
    prefix = options.get("prefix")
    if prefix is not None:
        if not _PREFIX.fullmatch(prefix) or len(prefix) > _MAX_PREFIX:
            raise ConfigError(
                f"prefix must be 1 to {_MAX_PREFIX} characters without spaces and braces, got "
                f"{prefix!r}; use a short name such as shop"
            )
        numbers["prefix"] = prefix
    rules: dict[str, tuple[Callable[[str], float], float, float]] = {
        "wait_replicas": (int, 0, 100),
        "max_connections": (int, 1, 10_000),
        "timeout": (float, 0.1, _MAX_SECONDS),
    }
    for name, (read, least, most) in rules.items():
        if name in options:
            numbers[name] = _number(name, options[name], read, least, most)
    return numbers


def _number(name: str, text: str, read: Callable[[str], float], least: float, most: float) -> float:
    try:
        number = read(text)
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        what = "a number of seconds" if read is float else "a whole number"
        raise ConfigError(
            f"{name} must be {what} from {least:g} to {most:g}, got {text!r}; correct it in the URL"
        )
    return number
