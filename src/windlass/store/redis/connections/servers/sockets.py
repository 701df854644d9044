"""Owns how a socket to a server is set up: TLS, keepalives, and what is said if it cannot be."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from functools import lru_cache

from windlass.core.errors import ConfigError, StoreRefused
from windlass.store.redis.connections.servers.urls import Endpoint, RedisAddress, TlsOptions

CONNECT_SECONDS = 5.0
"""Seconds within which a server must accept a connection and answer the handshake."""
_KEEPALIVES = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
_USER_TIMEOUT_MS = 15_000
"""Keepalive settings by which an idle socket notices a dead peer within half a minute."""


def prepare(sock: socket.socket) -> None:
    """Let a socket send at once, and notice a peer that is gone."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (*_KEEPALIVES, ("TCP_USER_TIMEOUT", _USER_TIMEOUT_MS)):
        if (option := getattr(socket, name, None)) is not None:  # macOS does not have all of them.
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def tls_context(options: TlsOptions | None) -> ssl.SSLContext | None:
    """Return the context of a TLS connection, or None for a plain one.

    Raises:
        ConfigError: a file that the URL names cannot be read.
    """
    return None if options is None else _context(options)


@lru_cache(maxsize=16)
def _context(options: TlsOptions) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=options.ca_certs)
    except (OSError, ssl.SSLError) as error:
        raise _unreadable("ssl_ca_certs", options.ca_certs, error) from error
    if not options.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if options.certfile is not None:
        try:
            context.load_cert_chain(options.certfile, options.keyfile)
        except (OSError, ssl.SSLError) as error:
            raise _unreadable("ssl_certfile and ssl_keyfile", options.certfile, error) from error
    return context


def _unreadable(option: str, path: str | None, error: Exception) -> ConfigError:
    reason = getattr(error, "strerror", None) or error
    return ConfigError(
        f"{option} must be readable PEM files, got {path!r}: {reason}; check the path"
    )


def refused(error: OSError, endpoint: Endpoint, address: RedisAddress) -> StoreRefused | None:
    """Return the error for a failure to connect that waiting does not change, or None."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return StoreRefused(
            f"{address.location}: the certificate of {endpoint} is not accepted "
            f"({error.verify_message}); set ssl_ca_certs= to its CA, and use a host "
            "name that it covers"
        )
    if isinstance(error, ssl.SSLError):
        return StoreRefused(
            f"{address.location}: the TLS handshake with {endpoint} failed "
            f"({error.reason or error}); check port and scheme, and set ssl_certfile= if the "
            "server asks for a client certificate"
        )
    if isinstance(error, (FileNotFoundError, PermissionError)) and not endpoint.port:
        return StoreRefused(
            f"{address.location}: the socket {endpoint} cannot be opened ({error.strerror}); check "
            "its path and its permissions"
        )
    return None


def reason_of(error: OSError, endpoint: Endpoint) -> str:
    """Return a readable reason why a server cannot be reached."""
    # The kernel reports its timeout as a call that would block.
    is_late = isinstance(error, (TimeoutError, BlockingIOError))
    # The message of asyncio does not include the reason.
    is_known = error.errno in errno.errorcode and not isinstance(error, socket.gaierror)
    said = os.strerror(error.errno) if is_known and error.errno else error.strerror or error
    why = "no answer in time" if is_late else said
    return f"{endpoint}: {why}"
