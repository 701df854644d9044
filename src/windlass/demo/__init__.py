"""The demo: an app with handlers of several kinds, and a run of them whose figures are checked."""

from windlass.demo.jobs import app

__all__ = ["app"]
