"""Windlass in Flask: handlers inside an app context, and `flask windlass ...`.

`init_app(flask_app, jobs)`, or `FlaskWindlass(jobs)` with an application factory.
"""

from windlass.contrib.flask.extension import FlaskWindlass, init_app, windlass_app

__all__ = ["FlaskWindlass", "init_app", "windlass_app"]
