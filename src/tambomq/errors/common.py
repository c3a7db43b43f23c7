"""The root of all errors, and those that belong to no protocol and no server."""

from __future__ import annotations


class TamboError(Exception):
    """Base of every error raised on purpose."""

    code: str = ""


class Reject(TamboError):
    """Raised by a handler: its message is dead, now. The text is the reason kept with it."""


class UnrecoverableError(Reject, RuntimeError):
    """Raised by a handler: its job is dead, now, without further retries."""


class SettingsError(TamboError):
    """A flag, an environment variable or a file asks for the impossible."""


class DoorFailed(TamboError):
    """A door of ``tambo serve`` cannot be opened, or not kept open."""

    def __init__(self, door: str, why: object) -> None:
        super().__init__(f"{door} cannot be served: {why}")
        self.door = door
