"""Loads settings from file, environment and flags. `sections` declares them.

A later source wins: defaults, then ``tambo.toml``, then ``TAMBO_*`` variables, then flags.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tambomq.errors import SettingsError
from tambomq.settings.sections import (
    AccessSettings,
    AlarmsSettings,
    ChasquiSettings,
    GomqSettings,
    HttpSettings,
    JournalSettings,
    KqueueSettings,
    LogSettings,
    RsmqSettings,
    ServerSettings,
    Settings,
    default_data_dir,
)
from tambomq.settings.types import Flag, Secret, ValueType

__all__ = [
    "CONFIG_FILE",
    "AccessSettings",
    "AlarmsSettings",
    "ChasquiSettings",
    "GomqSettings",
    "HttpSettings",
    "JournalSettings",
    "KqueueSettings",
    "LogSettings",
    "RsmqSettings",
    "ServerSettings",
    "Settings",
    "Spec",
    "default_data_dir",
    "example_toml",
    "load",
    "specs",
    "unknown_variables",
]

CONFIG_FILE: Final = "tambo.toml"
_ENV: Final = "TAMBO_"
# Variables that share the prefix and set nothing here: those of our tests and of other commands,
_NOT_SETTINGS: Final = ("TAMBO_TEST_", "TAMBO_LAKE", "TAMBO_DURABLE")
# and those that Kubernetes sets in every container for a Service named tambo or tambo-….
_OF_SERVICES: Final = re.compile(
    r"TAMBO_(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_\w+)?)"
)
_SERVICE_URL: Final = re.compile(r"(?:tcp|udp|sctp)://")

# Sections whose keys stand alone in variables and flags: --redis-url, not --server-redis-url.
_UNPREFIXED: Final = frozenset({"server"})


@dataclass(frozen=True, slots=True)
class Spec:
    """One setting and its names in each source."""

    section: str
    key: str
    form: ValueType
    about: str
    default: Any
    example: str
    alias: str = ""

    @property
    def name(self) -> str:
        """Its name among flags, in Python's spelling: ``redis_url``, ``log_level``."""
        return self.key if self.section in _UNPREFIXED else f"{self.section}_{self.key}"

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return _ENV + self.name.upper()

    @property
    def flag(self) -> str:
        """Its flag, the one that changes the default if it is a switch."""
        return self._off if self.default is True else self._on

    @property
    def spellings(self) -> tuple[str, ...]:
        """All its flags, as click takes them: both directions of a switch in one."""
        aliases = (self.alias,) if self.alias else ()
        if not isinstance(self.form, Flag):
            return (self._on, *aliases)
        return (f"{self._on}/{self._off}", *aliases)

    @property
    def _on(self) -> str:
        # --gomq, not --gomq-enabled.
        name = self.section if self.key == "enabled" else self.name
        return "--" + name.replace("_", "-")

    @property
    def _off(self) -> str:
        return "--no-" + self._on.removeprefix("--")


def specs() -> Iterator[Spec]:
    """Yield every setting, section by section."""
    for section, kind in _sections().items():
        for each in dataclasses.fields(kind):
            yield Spec(
                section=section,
                key=each.name,
                form=each.metadata["form"],
                about=each.metadata["about"],
                default=getattr(kind(), each.name),
                example=each.metadata["example"],
                alias=each.metadata["alias"],
            )


def load(
    config: Path | None = None,
    env: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Settings:
    """Return the settings from all sources.

    *config* is read if given and must then exist; else ``tambo.toml`` of the working directory, if
    there is one. *flags* go by `Spec.name`; ``None`` and ``()`` mean not given. Raises
    `SettingsError`.
    """
    values: dict[str, dict[str, Any]] = {section: {} for section in _sections()}
    for spec, value, source in (
        *_from_file(config),
        *_from_env(os.environ if env is None else env),
        *_from_flags(flags or {}),
    ):
        try:
            values[spec.section][spec.key] = spec.form.read(value)
        except ValueError:
            wrong = _wrong_value(spec, value)
            raise SettingsError(f"{source}: expected {spec.form}{wrong}") from None
    return Settings(**{s: kind(**values[s]) for s, kind in _sections().items()})


def unknown_variables(env: Mapping[str, str] | None = None) -> list[str]:
    """Return a warning for every ``TAMBO_*`` variable that is not a setting."""
    known = {spec.variable: spec for spec in specs()}
    return [
        f"{name}: no such variable, it is ignored{_did_you_mean(name, known, or_list=False)}"
        for name, _ in _settings_in(os.environ if env is None else env)
        if name not in known
    ]


def example_toml() -> str:
    """Render ``tambo.example.toml``: every setting with its default and what it is for."""
    lines = [
        "# The settings of TamboMQ. Copy this file to tambo.toml and uncomment what you change.",
        "# A TAMBO_* variable wins over this file, a flag over both.",
    ]
    section = ""
    for spec in specs():
        if spec.section != section:
            section = spec.section
            lines += ["", f"# {_sections()[section].__doc__}", f"[{section}]"]
        lines += ["", f"# {spec.about}", f"# {spec.form}; {spec.variable}, {spec.flag}"]
        lines += [f"# {spec.key} = {spec.example or spec.form.toml(spec.default)}"]
    return "\n".join(lines) + "\n"


_Found = Iterator[tuple[Spec, object, str]]


def _from_file(config: Path | None) -> _Found:
    path = config or Path(CONFIG_FILE)
    if config is None and not path.exists():
        return
    known = {
        section: {s.key: s for s in specs() if s.section == section} for section in _sections()
    }
    for section, table in _parsed(path).items():
        if section not in known or not isinstance(table, dict):
            raise SettingsError(f"{path}: no section [{section}]{_did_you_mean(section, known)}")
        for key, value in table.items():
            if key not in known[section]:
                hint = _did_you_mean(key, known[section])
                raise SettingsError(f"{path}: no key {key} in [{section}]{hint}")
            yield known[section][key], value, f"{path}: {key} in [{section}]"


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as exc:
        raise SettingsError(f"{path}: cannot be read: {exc.strerror}") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise SettingsError(f"{path}: is not TOML: {exc}") from exc


def _from_env(env: Mapping[str, str]) -> _Found:
    known = {spec.variable: spec for spec in specs()}
    for name, value in _settings_in(env):
        # An empty variable is how a shell or a unit file says "not set".
        if name in known and value:
            yield known[name], value, name


def _settings_in(env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the variables that may be meant as settings."""
    for name, value in env.items():
        is_port = name.endswith("_PORT") and _SERVICE_URL.match(value)
        if is_port or not name.startswith(_ENV) or name.startswith(_NOT_SETTINGS):
            continue
        if not _OF_SERVICES.fullmatch(name):
            yield name, value


def _from_flags(flags: Mapping[str, object]) -> _Found:
    known = {spec.name: spec for spec in specs()}
    for name, value in flags.items():
        if value not in (None, ()):
            yield known[name], value, known[name].flag


def _sections() -> dict[str, Any]:
    return {each.name: each.default_factory for each in dataclasses.fields(Settings)}


def _did_you_mean(name: str, known: Mapping[str, object], *, or_list: bool = True) -> str:
    if close := difflib.get_close_matches(name, known, n=1):
        return f"; did you mean {close[0]}?"
    return f"; there are {', '.join(known)}" if or_list else ""


def _wrong_value(spec: Spec, value: object) -> str:
    """Return the wrong value for the error text, unless it is a secret."""
    from tambomq.log import mask_url  # noqa: PLC0415  (only a fault needs it)

    return "" if isinstance(spec.form, Secret) else f", not {mask_url(repr(value))}"
