"""Owns the redaction of what people and scripts are shown: the command line and the web page."""

from __future__ import annotations

import sys

from windlass.app.app import Windlass
from windlass.core.payloads.redaction import Redaction


def redaction_of(app: Windlass) -> Redaction:
    """Return the redaction of an app's settings; nothing is cut, since scripts read it, too."""
    return Redaction(app.settings.redact, max_text=sys.maxsize)
