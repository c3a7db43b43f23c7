"""The file of users: read if nobody else can, and replaced as a whole."""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tambomq.access.decisions import UserSet
from tambomq.access.model import User
from tambomq.access.wire import from_toml, to_toml
from tambomq.errors import InvalidFormat, SettingsError

MAX_FILE_BYTES: Final = 16 << 20

Change = Callable[[User | None], User | None]
"""Returns what a user is to be, given what it is; `None` means that there is none."""


class UserFile:
    """The users in the TOML file at *path*."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    def version(self) -> object:
        """Return what is different once the file was changed or replaced; `None` if it is away."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size

    def read(self) -> dict[str, User]:
        """Return the users. Raises `SettingsError`."""
        try:
            with self.path.open("rb") as file:
                self._check(os.fstat(file.fileno()))
                text = file.read(MAX_FILE_BYTES + 1)
        except FileNotFoundError:
            advice = f"`tambo access add NAME --file {self.path} …` creates it"
            raise SettingsError(f"{self.path}: there is no such file: {advice}") from None
        except OSError as error:
            raise SettingsError(f"{self.path}: cannot be read: {error.strerror}") from error
        return self._users(text)

    def change(self, name: str, change: Change) -> User | None:
        """Replace the user *name* by what *change* returns. Raises `SettingsError`."""
        with self._locked():
            users = self.read() if self.path.exists() else {}
            after = change(users.get(name))
            if after is None:
                users.pop(name, None)
            else:
                users[name] = after
            text = to_toml(users).encode()
            # Nothing is written that could not be read again: nobody could log in, or undo it.
            try:
                UserSet(self._users(text))
            except InvalidFormat as error:
                raise SettingsError(str(error)) from error
            self._write(text)
        return after

    def _users(self, text: bytes) -> dict[str, User]:
        if len(text) > MAX_FILE_BYTES:
            raise SettingsError(f"{self.path}: it has more than {MAX_FILE_BYTES >> 20} MiB")
        try:
            return from_toml(text.decode(), str(self.path))
        except UnicodeDecodeError as error:
            raise SettingsError(f"{self.path}: is not UTF-8: {error}") from error

    def _check(self, found: os.stat_result) -> None:
        if not stat.S_ISREG(found.st_mode):
            raise SettingsError(f"{self.path}: is not a file")
        if found.st_mode & 0o077:
            mode = f"{stat.S_IMODE(found.st_mode):04o}"
            advice = f"chmod 600 {self.path}"
            raise SettingsError(
                f"{self.path}: its mode is {mode}, but only its owner may read and write it: "
                f"{advice}"
            )
        if found.st_uid not in (os.geteuid(), 0):
            raise SettingsError(
                f"{self.path}: it belongs to the user {found.st_uid}, who could give rights away: "
                "make it belong to the user of this process, or to root"
            )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # A lock on the folder: the file itself is replaced, and a lock file would stay behind.
        try:
            folder = os.open(self.path.parent, os.O_RDONLY)
        except OSError as error:
            raise SettingsError(f"{self.path}: cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def _write(self, text: bytes) -> None:
        # Through a link, so that its target is replaced and not the link.
        path, made = self.path.resolve(), ""
        try:
            number, made = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            with os.fdopen(number, "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(made).replace(path)
        except OSError as error:
            if made:
                Path(made).unlink(missing_ok=True)
            raise SettingsError(f"{self.path}: cannot be written: {error.strerror}") from error
