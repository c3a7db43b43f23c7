"""Every setting, its default and what it is for. No other file knows a default.

A later source wins: defaults, then ``tambo.toml``, then ``TAMBO_*`` variables, then flags. To add a
section, write a frozen dataclass of `setting` fields and give it a line in `Settings`: its keys,
variables, flags and its place in ``tambo.example.toml`` follow.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tambomq.errors import SettingsError
from tambomq.forms import Directory, Form, OneOf, Port, Url

CONFIG_FILE: Final = "tambo.toml"
_ENV: Final = "TAMBO_"
# Variables of our own tests, which share the prefix and set nothing here.
_NOT_SETTINGS: Final = "TAMBO_TEST_"


def default_data_dir() -> Path:
    """Return our directory among those where this user's programs keep their data."""
    if given := os.environ.get("XDG_DATA_HOME"):
        return Path(given) / "tambomq"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "tambomq"
    return Path.home() / ".local" / "share" / "tambomq"


def setting(form: Form, default: Any, about: str, *, example: str = "") -> Any:
    """Declare a field; *example* stands in the example file where the default has no TOML form."""
    metadata = {"form": form, "about": about, "example": example}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The Redis or Valkey server that holds the data."""

    redis_url: str | None = setting(
        Url("redis", "rediss", "unix"),
        None,
        "Use this server instead of the embedded one.",
        example='"redis://127.0.0.1:6379"',
    )
    redis_port: int = setting(
        Port(), 6379, "Where the embedded server listens, on loopback; 0 takes any free port."
    )
    data_dir: Path = setting(  # noqa: RUF009  (`setting` makes a field)
        Directory(),
        default_data_dir,
        "Where the embedded server keeps its data.",
        example='"~/.local/share/tambomq"',
    )


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What is told on stderr."""

    level: str = setting(
        OneOf("debug", "info", "warning", "error"), "info", "The least that is told."
    )
    format: str = setting(OneOf("text", "json"), "text", "For people, or one JSON object a line.")


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a process is told at its start."""

    server: ServerSettings = field(default_factory=ServerSettings)
    log: LogSettings = field(default_factory=LogSettings)


# Sections whose keys stand alone in variables and flags: --redis-url, not --server-redis-url.
_UNPREFIXED: Final = frozenset({"server"})


@dataclass(frozen=True, slots=True)
class Spec:
    """One setting, by all its names."""

    section: str
    key: str
    form: Form
    about: str
    default: Any
    example: str

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
        """Its flag."""
        return "--" + self.name.replace("_", "-")


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
            )


def load(
    config: Path | None = None,
    env: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Settings:
    """Return the settings from all sources.

    *config* is read if given and must then exist; else ``tambo.toml`` of the working directory, if
    there is one. *flags* go by `Spec.name`; ``None`` means not given. Raises `SettingsError`.
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
            raise SettingsError(f"{source}: expected {spec.form}, not {_shown(value)}") from None
    return Settings(**{s: kind(**values[s]) for s, kind in _sections().items()})


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
    for name, value in env.items():
        if not name.startswith(_ENV) or name.startswith(_NOT_SETTINGS):
            continue
        if name not in known:
            raise SettingsError(f"{name}: no such variable{_did_you_mean(name, known)}")
        # An empty variable is how a shell or a unit file says "not set".
        if value:
            yield known[name], value, name


def _from_flags(flags: Mapping[str, object]) -> _Found:
    known = {spec.name: spec for spec in specs()}
    for name, value in flags.items():
        if value is not None:
            yield known[name], value, known[name].flag


def _sections() -> dict[str, Any]:
    return {each.name: each.default_factory for each in dataclasses.fields(Settings)}


def _did_you_mean(name: str, known: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(known)}"


def _shown(value: object) -> str:
    from tambomq.log import mask_url  # noqa: PLC0415  (only a fault needs it)

    return mask_url(repr(value))
