"""A rule of a protocol was broken, and whose fault that is."""

from __future__ import annotations

from tambomq.errors.common import TamboError


class ProtocolError(TamboError):
    """A rule of a protocol was broken."""


class LocalProtocolError(ProtocolError, ValueError):
    """The caller asked for what the protocol forbids."""


class InvalidFormat(LocalProtocolError):
    """A name or an id is not of the form the protocol demands."""

    code = "invalidFormat"

    def __init__(self, what: str, value: object, rule: str) -> None:
        super().__init__(f"{what} {value!r} is not valid: {rule}")
        self.what, self.value, self.rule = what, value, rule
        if value in (None, ""):
            self.code = "missingParameter"


class InvalidValue(LocalProtocolError):
    """A number is outside its range."""

    code = "invalidValue"

    def __init__(self, what: str, value: object, rule: str) -> None:
        super().__init__(f"{what} must be {rule}, not {value!r}")
        self.what, self.value, self.rule = what, value, rule


class InvalidBody(LocalProtocolError):
    """A body is neither text nor bytes."""

    code = "messageNotString"

    def __init__(self, body: object) -> None:
        what = "text that no UTF-8 can carry" if isinstance(body, str) else type(body).__name__
        super().__init__(f"a body is str or bytes, not {what}")


class InvalidPayload(LocalProtocolError):
    """A value cannot be written as MessagePack."""

    def __init__(self, value: object, why: object) -> None:
        super().__init__(f"a payload of type {type(value).__name__} cannot be encoded: {why}")


class NothingToSet(LocalProtocolError):
    """No attribute to set was given."""

    code = "noAttributeSupplied"

    def __init__(self) -> None:
        super().__init__("give at least one of vt, delay and maxsize")


class RemoteProtocolError(ProtocolError):
    """The peer sent what the protocol forbids."""
