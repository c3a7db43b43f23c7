"""Run by the Python of an installed package: imports every module, asks every command for help."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator

import click
from click.testing import CliRunner

import tambomq
from tambomq.cli.extras import extras_required
from tambomq.cli.main import tambo
from tambomq.errors import SettingsError

EXTRAS = "--extras" in sys.argv


def available(make: Callable[[], object]) -> bool:
    """Whether *make* works; without extras it may also say which one is missing."""
    try:
        with extras_required():
            make()
    except SettingsError as missing:
        if EXTRAS or "pip install " not in str(missing):
            raise
        return False
    return True


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every command below *group* that is available, and of *group* itself."""
    yield path
    with click.Context(group) as ctx:
        for name in group.list_commands(ctx):
            if not available(lambda name=name: group.get_command(ctx, name)):  # type: ignore[misc]
                continue
            command = group.get_command(ctx, name)
            if isinstance(command, click.Group):
                yield from commands(command, (*path, name))
            else:
                yield (*path, name)


def main() -> None:
    """Print how much was seen."""
    assert "site-packages" in tambomq.__file__, tambomq.__file__
    asked = 0
    for path in commands(tambo):
        shown = CliRunner().invoke(tambo, [*path, "--help"])
        assert shown.exit_code == 0, (path, shown.output, shown.exception)
        assert "Usage:" in shown.output, path
        asked += 1
    modules = [found.name for found in pkgutil.walk_packages(tambomq.__path__, "tambomq.")]
    imported = sum(available(lambda: importlib.import_module(name)) for name in modules)  # noqa: B023
    print(f"commands {asked} modules {imported}")  # noqa: T201  (read by the test)


if __name__ == "__main__":
    main()
