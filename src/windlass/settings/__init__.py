"""The settings: their names, bounds and documentation, and which value wins."""

from windlass.settings.encryption_keys import EncryptionKey
from windlass.settings.files import read_dotenv
from windlass.settings.loading import (
    DEFAULT,
    Resolved,
    Setting,
    SettingHelp,
    describe_settings,
    load_settings,
)
from windlass.settings.model import (
    FlagArguments,
    LogFormat,
    LogLevel,
    Served,
    SettingArguments,
    Settings,
    Traces,
    usable_cpus,
)
from windlass.settings.url_masking import redact_url

__all__ = [
    "DEFAULT",
    "EncryptionKey",
    "FlagArguments",
    "LogFormat",
    "LogLevel",
    "Resolved",
    "Served",
    "Setting",
    "SettingArguments",
    "SettingHelp",
    "Settings",
    "Traces",
    "describe_settings",
    "load_settings",
    "read_dotenv",
    "redact_url",
    "usable_cpus",
]
