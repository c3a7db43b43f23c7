"""Users of the embedded server: their rights, and their passwords in the data directory.

The default user may read and write all data but not administer the server: clients connect with the
plain URL, and otherwise any local user could switch persistence off. Only `ADMIN` may do that. With
*auth* the default user has a password too. Passwords are drawn once and survive restarts.

=================== ========================================================
file                holds
=================== ========================================================
``admin.password``  the password of `ADMIN`
``password``        the password of the default user, used with *auth*
``users.acl``       the ACL file of the server: password hashes and rights
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

# INFO, KEYS, SORT and ROLE are in @dangerous, CLIENT LIST and UNBLOCK in @admin, but clients need
# them (our workers UNBLOCK). Loading functions is refused since they run with the rights of their
# caller, and debugging scripts because it stops the whole server.
_DATA: Final = (
    "sanitize-payload ~* &* +@all -@admin -@dangerous "
    "+info +keys +sort +sort_ro +role +client|list +client|unblock "
    "-function|load -function|delete -function|flush -function|restore -function|kill "
    "-script|debug"
)


@dataclass(frozen=True, slots=True)
class Access:
    """The passwords of a server. The default user needs none if *password* is `None`."""

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
    """Write the ACL file in *directory*, and passwords if there are none yet.

    Other users in the file, added by an operator, are kept.
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
    own = tuple(f"user {name} " for name in ("default", ADMIN))
    return [line for line in lines if line and not line.startswith(own)]


def _hashed(password: str) -> str:
    return f"#{hashlib.sha256(password.encode()).hexdigest()}"


def _write(path: Path, text: str) -> None:
    # Written to a draft and renamed: never incomplete, and never readable by other users.
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file, "w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    draft.replace(path)
