"""Users of the embedded server: what each may do, and the passwords in the data directory.

The default user has all data and no administration: other clients come with the plain URL, and
any local user could otherwise switch persistence off. Administration is for `ADMIN`. With *auth*
the default user has a password too. Passwords are drawn once and stay over restarts.

=================== ========================================================
file                holds
=================== ========================================================
``admin.password``  the password of `ADMIN`
``password``        the password of the default user, used with *auth*
``users.acl``       what the server reads: hashes, and what each user may do
=================== ========================================================
"""

from __future__ import annotations

import hashlib
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import quote

from tambomq.store.local_login import PASSWORD

ADMIN: Final = "tambo-admin"
ADMIN_PASSWORD: Final = "admin.password"  # noqa: S105  (the name of a file)
USERS: Final = "users.acl"

# INFO, KEYS, SORT and ROLE count as dangerous, CLIENT LIST and UNBLOCK as administration; clients
# need them, workers of ours the last. Functions are code that others run, with their own rights,
# and whoever debugs a script stops the server.
_DATA: Final = (
    "sanitize-payload ~* &* +@all -@admin -@dangerous "
    "+info +keys +sort +sort_ro +role +client|list +client|unblock "
    "-function|load -function|delete -function|flush -function|restore -function|kill "
    "-script|debug"
)


@dataclass(frozen=True, slots=True)
class Access:
    """The passwords of a server; without one of its own, the default user needs none."""

    admin_password: str = field(repr=False)
    password: str | None = field(repr=False)

    @property
    def admin(self) -> str:
        """The login of `ADMIN`, as it stands in a URL."""
        return f"{ADMIN}:{quote(self.admin_password, safe='')}@"

    @property
    def default(self) -> str:
        """The login of the default user, as it stands in a URL; empty if it needs none."""
        return f":{quote(self.password, safe='')}@" if self.password else ""


def prepare(directory: Path, *, auth: bool) -> Access:
    """Write what the server reads in *directory*, with passwords drawn if there are none.

    Users that an operator has added and saved stay as they are.
    """
    admin = _password(directory / ADMIN_PASSWORD)
    password = _password(directory / PASSWORD) if auth else None
    lines = [
        f"user default on {_hashed(password) if password else 'nopass'} {_DATA}",
        f"user {ADMIN} on {_hashed(admin)} ~* &* +@all",
        *_others(directory / USERS),
    ]
    _write(directory / USERS, "\n".join(lines) + "\n")
    return Access(admin, password)


def _password(path: Path) -> str:
    try:
        if found := path.read_text("utf-8").strip():
            path.chmod(0o600)
            return found
    except FileNotFoundError:
        pass
    drawn = secrets.token_urlsafe(32)
    _write(path, f"{drawn}\n")
    return drawn


def _others(path: Path) -> list[str]:
    try:
        lines = path.read_text("utf-8").splitlines()
    except FileNotFoundError:
        return []
    ours = tuple(f"user {name} " for name in ("default", ADMIN))
    return [line for line in lines if line and not line.startswith(ours)]


def _hashed(password: str) -> str:
    return f"#{hashlib.sha256(password.encode()).hexdigest()}"


def _write(path: Path, text: str) -> None:
    # Written beside and renamed: never half there, and never readable by others.
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file, "w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    draft.replace(path)
