"""Imports modules that a user names; an error becomes one line that says what is wrong.

Modules are found as ``python -m`` finds them: the current directory comes first.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Final

from tambomq.errors import SettingsError
from tambomq.failures import headline, text_of, type_of

_PACKAGE: Final = Path(__file__).parents[2]
_LIBRARIES: Final = tuple(
    {Path(sysconfig.get_path(each)) for each in ("stdlib", "platstdlib", "purelib", "platlib")}
)


def import_module(name: str) -> ModuleType:
    """Return the module *name*. Raises `SettingsError`, caused by what the import raised."""
    is_file = name.endswith(".py") and Path(name).is_file()
    if is_file or not all(part.isidentifier() for part in name.split(".")):
        raise SettingsError(_not_a_module(name))
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # One that the module itself imports may be missing as well: that is its own error.
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise SettingsError(_not_found(name, error.name)) from error
        raise SettingsError(_failed(name, error)) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # Also sys.exit: a script that was written to be run ends like this.
        raise SettingsError(_failed(name, error)) from error


def source_files() -> Iterator[str]:
    """Yield the files of imported modules that are neither a library nor part of this package."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py"):
            continue
        path = Path(file)
        if not any(path.is_relative_to(each) for each in (_PACKAGE, *_LIBRARIES)):
            yield file


def _not_a_module(name: str) -> str:
    if name.endswith(".py") or "/" in name:
        meant = ".".join(Path(name.removesuffix(".py")).parts).lstrip("./")
        return f"{name!r} is a file, not a module: write `tambo work {meant}`"
    return f"{name!r} is not the name of a module, such as shop.jobs, or shop.jobs:mail"


def _not_found(name: str, missing: str) -> str:
    parent, _, last = missing.rpartition(".")
    known = [f"{parent}.{each}" if parent else each for each in _modules_in(parent)]
    meant = get_close_matches(missing, known, n=1)
    hint = f"; did you mean {name.replace(missing, meant[0], 1)!r}?" if meant else ""
    searched = f"in package {parent!r}" if parent else f"in {Path.cwd()} or where Python looks"
    return f"there is no module {last!r} {searched}{hint}"


def _modules_in(parent: str) -> Iterator[str]:
    """Yield the names of the modules of a package; without one, of the current directory."""
    package = sys.modules.get(parent) if parent else None
    path = [str(Path.cwd())] if package is None else list(getattr(package, "__path__", ()))
    for each in pkgutil.iter_modules(path):
        yield each.name


def _failed(name: str, error: BaseException) -> str:
    what = headline(type_of(error), text_of(error))
    if isinstance(error, SystemExit):
        what = f"it calls sys.exit({error.code!r})"
    elif isinstance(error, SyntaxError):
        # Its text has the file and the line already.
        return f"cannot import {name}: {what}"
    return f"cannot import {name}: {what}{_place(error)}"


def _place(error: BaseException) -> str:
    """Return the last line of the user's own code in the traceback."""
    # Not by extract_tb: it finds nothing where a library has set sys.tracebacklimit to 0.
    frames = (
        (each.f_code.co_filename, line) for each, line in traceback.walk_tb(error.__traceback__)
    )
    inside = [(Path(name), line) for name, line in frames if _is_users(name)]
    if not inside:
        return ""
    file, line = inside[-1]
    shown = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
    return f" ({shown}, line {line})"


def _is_users(file: str) -> bool:
    libraries = (_PACKAGE, *_LIBRARIES)
    return not file.startswith("<") and not any(map(Path(file).is_relative_to, libraries))
