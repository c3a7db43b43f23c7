"""The entry points of the installed commands. Without their extra, they say what to install.

Nothing of an extra is imported here: the package without any has these commands too.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final

from tambomq.extras import EXTRAS, how_to_install

_USAGE: Final = 2
# Those that need more than the extra of all commands, which they bring with them.
_NEEDS: Final = {
    "backup": "serve",
    "console": "serve",
    "demo": "serve",
    "gomq": "cli,gomq",
    "pipeline": "spark",
    "restore": "serve",
    "serve": "serve",
}


def tambo() -> None:
    """Run ``tambo``."""
    _run("tambo", "tambomq.cli.main", _NEEDS.get("".join(sys.argv[1:2]), "cli"))


def chasqui() -> None:
    """Run ``chasqui``."""
    _run("chasqui", "tambomq.cli.chasqui", "cli")


def rsmqctl() -> None:
    """Run ``rsmqctl``."""
    _run("rsmqctl", "tambomq.cli.rsmq.rsmqctl", "cli")


def _run(prog: str, module: str, extra: str) -> None:
    try:
        main = import_module(module).main
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        why = f"{error.name} is not installed, and this command needs it"
        sys.stderr.write(f"{prog}: {why}: {how_to_install(extra)}\n")
        sys.exit(_USAGE)
    main()
