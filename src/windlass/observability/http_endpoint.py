"""Owns the HTTP endpoint for metrics and probes, in a thread that a busy worker cannot block.

The endpoint has four paths, reads no body, keeps no connection, and bounds the length, duration and
number of requests.
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import ipaddress
import json
import re
import socket
import threading
from base64 import b64decode
from binascii import Error
from collections.abc import Callable, Iterator

from msgspec import Struct

from windlass.core.metrics.exposition import CONTENT_TYPE
from windlass.observability.logs import get_logger

log = get_logger("windlass.metrics")
MAX_PORTS_TRIED = 100
"""Number of ports that are tried, from the wanted one on."""
_MAX_REQUEST_BYTES = 8_192
_REQUEST_SECONDS = 5.0
_MAX_CONNECTIONS = 32
_PLAIN = "text/plain; charset=utf-8"
_JSON = "application/json"
_LOCAL = "localhost"
_HOST = re.compile(r"(?:\[([^]]+)\]|([^:]+))(?::\d*)?")
_OTHER_PORT = "set WINDLASS_METRICS_PORT to another one, or to 0"
_OTHER_HOST = "set WINDLASS_METRICS_HOST to an address of this host, like 127.0.0.1 or 0.0.0.0"
_CLOSED = (
    "other hosts need a token for metrics; set WINDLASS_METRICS_TOKEN, or start the worker with "
    "--insecure\n"
)
_STRANGE = (
    "without a token, metrics are served only for requests to this host's address or to "
    "localhost; use one of those, set WINDLASS_METRICS_TOKEN, or start the worker with "
    "--insecure\n"
)


class Health(Struct, frozen=True, kw_only=True):
    """Whether the process and its supervisor are alive, and whether jobs are claimed."""

    live: bool
    ready: bool


class Access(Struct, frozen=True, kw_only=True):
    """The address of the endpoint, and its clients: with the token, or without one on this host."""

    host: str = "127.0.0.1"
    port: int = 19_463
    token: str = ""
    insecure: bool = False

    @property
    def is_local(self) -> bool:
        if _is_address(self.host):
            return ipaddress.ip_address(self.host).is_loopback
        return self.host == _LOCAL

    @property
    def is_closed(self) -> bool:
        """Whether metrics are refused, since any host could read them."""
        return not (self.token or self.insecure or self.is_local)

    def knows(self, host: str) -> bool:
        """Return whether a Host header cannot come from a web page (DNS rebinding).

        A page in a browser on this host may let its own name resolve to this address, but its
        requests carry that name. Requests that need a token are safe without this check.
        """
        if self.token or self.insecure or not host.strip():
            return True
        named = _HOST.fullmatch(host.strip().lower())
        name = "" if named is None else named[1] or named[2]
        return name.rstrip(".") in (_LOCAL, self.host) or _is_address(name)

    def admits(self, credentials: str) -> bool:
        """Return whether an Authorization header has the token.

        Either as a bearer token, or as the password of basic authentication.
        """
        if not self.token:
            return True
        scheme, _, given = credentials.strip().partition(" ")
        sent = given.strip().encode("latin-1", "replace")
        if scheme.lower() == "basic":
            sent = _password(sent)
        elif scheme.lower() != "bearer":
            sent = b""
        return hmac.compare_digest(sent, self.token.encode())


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _password(sent: bytes) -> bytes:
    try:
        return b64decode(sent, validate=True).partition(b":")[2]
    except Error:
        return b""


class Endpoint:
    """Serves `/metrics`, `/health/live`, `/health/ready` and `/health`, from `start` to `stop`."""

    def __init__(
        self, access: Access, *, metrics: Callable[[], str], health: Callable[[], Health]
    ) -> None:
        self._access = access
        self._metrics = metrics
        self._health = health
        self._thread: threading.Thread | None = None
        self._begun = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Event | None = None
        self._silent: dict[asyncio.StreamWriter, None] = {}
        """Connections without a request yet, oldest first."""
        self._answered: set[asyncio.StreamWriter] = set()
        self._problem = self._remedy = ""
        self.address = ""
        """The address, `host:port`; empty if there is none."""

    def start(self) -> None:
        """Listen on the wanted port, or the next free one; `tell` logs which."""
        listener, self._problem, self._remedy = _listener(self._access)
        if listener is None:
            return
        port = listener.getsockname()[1]
        host = self._access.host
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(listener)), name="windlass-metrics", daemon=True
        )
        self._thread.start()

    def tell(self) -> None:
        """Log the address of the endpoint, or why there is none."""
        if self._problem:
            log.warning("metrics.not_served", problem=self._problem, remedy=self._remedy)
            return
        log.info("metrics.served", address=self.address, wanted=self._access.port)
        if not self.address.endswith(f":{self._access.port}"):
            log.warning(
                "metrics.moved",
                address=self.address,
                why=f"port {self._access.port} is in use",
                remedy="scrape this address, or set WINDLASS_METRICS_PORT to a free port",
            )
        if self._access.is_closed:
            log.warning("metrics.closed", address=self.address, why=_CLOSED.strip())

    def stop(self) -> None:
        if self._thread is not None:
            if (
                self._begun.wait(_REQUEST_SECONDS)
                and self._loop is not None
                and self._over is not None
            ):
                self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join(_REQUEST_SECONDS)
            self._thread = None
            self.address = ""

    async def _serve(self, listener: socket.socket) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._handle, sock=listener, limit=_MAX_REQUEST_BYTES)
        self._begun.set()
        async with server:
            await self._over.wait()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                writer.write(await self._answer_to(reader, writer))
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            # A client that does not finish, does not read, or is gone needs no answer.
            writer.transport.abort()
        finally:
            self._silent.pop(writer, None)
            self._answered.discard(writer)
            writer.close()

    async def _answer_to(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        if not self._has_capacity():
            return _answer(503, "busy\n")
        self._silent[writer] = None
        try:
            request = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _answer(431, "the request is too long\n")
        self._silent.pop(writer, None)  # It may have been evicted meanwhile.
        self._answered.add(writer)
        return self._respond(request)

    def _has_capacity(self) -> bool:
        """Return whether one more client fits, after evicting the one silent for longest."""
        if len(self._silent) + len(self._answered) < _MAX_CONNECTIONS:
            return True
        oldest = next(iter(self._silent), None)
        if oldest is None:
            return False
        del self._silent[oldest]
        oldest.transport.abort()
        return True

    def _respond(self, request: bytes) -> bytes:
        line, *headers = request.decode("latin-1").split("\r\n")
        method, _, rest = line.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return _answer(405, "only GET and HEAD\n", Allow="GET, HEAD")
        try:
            answer = self._page(path, headers)
        except Exception:
            log.exception("metrics.failed", path=path[:100])
            answer = _answer(500, "failed\n")
        return answer.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if method == "HEAD" else answer

    def _page(self, path: str, headers: list[str]) -> bytes:
        match path:
            case "/metrics":
                return self._metrics_page(headers)
            case "/health/live":
                return _probe(self._health().live)
            case "/health/ready":
                return _probe(self._health().ready)
            case "/health":
                health = self._health()
                body = json.dumps({"live": health.live, "ready": health.ready}) + "\n"
                return _answer(200 if health.live and health.ready else 503, body, type_=_JSON)
            case _:
                return _answer(
                    404, "not found; try /metrics, /health/live, /health/ready or /health\n"
                )

    def _metrics_page(self, headers: list[str]) -> bytes:
        if self._access.is_closed:
            return _answer(403, _CLOSED)
        if not all(map(self._access.knows, _values(headers, "host"))):
            return _answer(403, _STRANGE)
        if not self._access.admits(next(_values(headers, "authorization"), "")):
            challenge = 'Bearer realm="windlass", Basic realm="windlass"'
            return _answer(401, "missing or wrong credentials\n", **{"WWW-Authenticate": challenge})
        return _answer(200, self._metrics(), type_=CONTENT_TYPE)


def _listener(access: Access) -> tuple[socket.socket | None, str, str]:
    """Return a socket at the first free port, or None, the reason and the remedy."""
    family = socket.AF_INET6 if ":" in access.host else socket.AF_INET
    for port in range(access.port, min(access.port + MAX_PORTS_TRIED, 65_536)):
        try:
            return socket.create_server((access.host, port), family=family), "", ""
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                remedy = _OTHER_HOST if _is_about_host(error) else _OTHER_PORT
                return None, f"{access.host}:{port}: {error.strerror or error}", remedy
    return None, f"no port of {access.host} is free, starting at {access.port}", _OTHER_PORT


def _is_about_host(error: OSError) -> bool:
    return error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror)


def _values(headers: list[str], wanted: str) -> Iterator[str]:
    for header in headers:
        name, _, value = header.partition(":")
        if name.strip().lower() == wanted:
            yield value


def _probe(good: bool) -> bytes:
    return _answer(200, "ok\n") if good else _answer(503, "no\n")


_REASONS = {
    200: "OK",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


def _answer(status: int, body: str, *, type_: str = _PLAIN, **headers: str) -> bytes:
    data = body.encode()
    lines = [
        f"HTTP/1.1 {status} {_REASONS[status]}",
        f"Content-Type: {type_}",
        f"Content-Length: {len(data)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data
