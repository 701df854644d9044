"""Owns the app as a worker's process finds it: `windlass.contrib.flask.project:jobs`.

Its attribute loads the Flask application that FLASK_APP names, as the command `flask` does.
"""

from __future__ import annotations

import os
from functools import cache

import click
from flask.cli import ScriptInfo

from windlass.app import Windlass
from windlass.contrib.flask.command import HOME
from windlass.contrib.flask.extension import windlass_app
from windlass.core.errors import ConfigError

ATTRIBUTE = "jobs"


def __getattr__(name: str) -> Windlass:
    if name != ATTRIBUTE:
        raise AttributeError(name)
    return _loaded()


@cache
def _loaded() -> Windlass:
    try:
        flask_app = ScriptInfo(os.environ.get("FLASK_APP")).load_app()
    except click.UsageError as error:
        raise ConfigError(f"Flask could not load its application: {error.message}") from error
    with flask_app.app_context():
        app = windlass_app()
    app.home = HOME
    return app
