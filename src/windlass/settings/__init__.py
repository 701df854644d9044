"""The settings: what can be set, by which names and within which bounds, and which value wins."""

from windlass.settings.files import read_dotenv
from windlass.settings.keys import EncryptionKey
from windlass.settings.loading import (
    DEFAULT,
    Resolved,
    Setting,
    SettingHelp,
    describe_settings,
    load_settings,
)
from windlass.settings.model import LogFormat, LogLevel, Served, Settings, Traces, usable_cpus
from windlass.settings.redaction import redact_url

__all__ = [
    "DEFAULT",
    "EncryptionKey",
    "LogFormat",
    "LogLevel",
    "Resolved",
    "Served",
    "Setting",
    "SettingHelp",
    "Settings",
    "Traces",
    "describe_settings",
    "load_settings",
    "read_dotenv",
    "redact_url",
    "usable_cpus",
]
