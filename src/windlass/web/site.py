"""Owns one page of an app: its settings, its templates, its shared reads, and how it answers."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse

from windlass.app.app import Windlass
from windlass.version import __version__
from windlass.web.access.queue_access import offers
from windlass.web.access.roles import Access, AccessFunction, Role
from windlass.web.access.sessions import Sessions
from windlass.web.live.limited_reads import LimitedReads
from windlass.web.live.open_streams import JobStreams
from windlass.web.live.reads import Reads
from windlass.web.live.watcher import Watcher
from windlass.web.rendering import charts, formats
from windlass.web.rendering.no_errors import no_errors

_HERE = Path(__file__).parent
STATIC = _HERE / "static"
ACCESS = "windlass.access"
"""The key of a request's access in its scope."""


@dataclass(kw_only=True)
class Site:
    """What all requests to one page have in common."""

    app: Windlass
    access: AccessFunction | None = None
    sessions: Sessions | None = None
    """Of people who log in with the token; None: there is none."""
    origins: tuple[str, ...] = ()
    """The origins under which a proxy serves the page, like `https://jobs.example.org`."""
    name: str = ""
    """The name of the environment, shown on every page."""
    read_only: bool = False
    reads: Reads = field(init=False)
    watcher: Watcher = field(init=False)
    job_streams: JobStreams = field(init=False)

    def __post_init__(self) -> None:
        self.reads = Reads(self.app)
        self.watcher = Watcher(self.reads)
        self.job_streams = JobStreams(self.app)
        self._key = secrets.token_bytes(32)

    def command(self, *words: object) -> str:
        """Return a command line that does something to the jobs of this app."""
        home = self.app.home
        given = [str(each) for each in words]
        return shlex.join(["windlass", *given, *(["--app", home] if home else [])])

    def sealed(self, message: str) -> str:
        """Return a message that the next page may show: no link of others can make it say more."""
        return f"{self._seal(message)}.{message}"

    def unsealed(self, text: str) -> str:
        """Return the message that this process sealed; nothing if it did not."""
        seal, _, message = text.partition(".")
        is_own = hmac.compare_digest(seal.encode(errors="replace"), self._seal(message).encode())
        return message if is_own else ""

    def _seal(self, message: str) -> str:
        digest = hmac.new(self._key, message.encode(errors="replace"), hashlib.sha256)
        return digest.hexdigest()[:16]


def site_of(request: Request) -> Site:
    site: Site = request.app.state.site
    return site


def access_of(request: Request) -> Access:
    """Return the access of a request that was let in."""
    access: Access = request.scope[ACCESS]
    return access


def reads_of(request: Request) -> Reads | LimitedReads:
    """Return what the person of a request may read; pages read nothing else."""
    site, access = site_of(request), access_of(request)
    return site.reads if access.queues is None else LimitedReads(site.app, site.reads, access)


def path_of(request: Request) -> str:
    """Return the path of a request below the prefix where this page is mounted."""
    path: str = request.scope["path"]
    return path.removeprefix(request.scope.get("root_path", ""))


def url(request: Request, path: str, **query: object) -> str:
    """Return the address of a part of this page, under the prefix where it is mounted."""
    root = request.scope.get("root_path", "").rstrip("/")
    given = {name: str(value) for name, value in query.items() if value not in (None, "")}
    return quote(root) + path + (f"?{urlencode(given)}" if given else "")


def named_url(request: Request, path: str, name: str) -> str:
    """Return the address of what has this name, like `/kinds/send_email`.

    Browsers and proxies change slashes and dots in paths: such a name is a parameter.
    """
    is_plain = name.isprintable() and not set(name) & set("/\\") and name.strip(".")
    if not is_plain:
        return url(request, f"{path}/", name=name)
    return url(request, f"{path}/{quote(name, safe='')}")


def static_url(request: Request, name: str) -> str:
    """Return the address of a static file, which changes with its release and content."""
    return url(request, f"/static/{release_hash()}/{name}")


@cache
def release_hash() -> str:
    """Return a hash of all static files, so that browsers may keep them for ever."""
    digest = hashlib.sha256(__version__.encode())
    for file in sorted(STATIC.iterdir()):
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()[:12]


@cache
def _templates() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=formats.shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(formats.FILTERS)
    made.globals["charts"] = charts
    made.globals["no_errors"] = no_errors
    made.globals["Role"] = Role
    return made


def render(
    request: Request,
    template: str,
    context: Mapping[str, Any],
    *,
    now: datetime | None = None,
    status: int = 200,
) -> HTMLResponse:
    """Answer with a template. `now` is the store's time, from which all times are counted."""
    site = site_of(request)
    access: Access | None = request.scope.get(ACCESS)
    common = {
        "access": access,
        "site_name": site.name,
        "read_only": site.read_only,
        "can_log_out": site.sessions is not None and site.access is None,
        "version": __version__,
        "path": path_of(request),
        "url": partial(url, request),
        "named": partial(named_url, request),
        "static": partial(static_url, request),
        "may": lambda role, action="": _may(access, role, action),
        "windlass": site.command,
        "now": now,
        "ago": lambda value: formats.moment(value, now) if now else formats.instant(value),
        "flash": site.unsealed(request.query_params.get("done", "")),
    }
    text = _templates().get_template(template).render({**common, **context})
    return HTMLResponse(text, status_code=status)


def _may(access: Access | None, role: Role, action: str = "") -> bool:
    """Return whether a person may do what takes a role; an action, by its name or path, too."""
    if access is None or not access.may(role):
        return False
    return not action or offers(access, action.removeprefix("/actions/"))


def see_other(request: Request, path: str, **query: object) -> RedirectResponse:
    """Answer a POST: the browser gets the page of what changed, which a reload does not repeat."""
    return RedirectResponse(url(request, path, **query), status_code=303)
