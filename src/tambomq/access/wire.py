"""Users as TOML, as the file has them, and as JSON, as Redis has them."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from tambomq.access.model import MAX_USERS, User, check_user
from tambomq.errors import InvalidFormat, SettingsError

_HEADER: Final = (
    "# The users of TamboMQ: what they may do, and the hashes of their tokens.\n"
    "# `tambo access` writes this file anew; changes are used within seconds, without a restart.\n"
)


class _File(msgspec.Struct, forbid_unknown_fields=True):
    users: dict[str, User] = {}


def from_toml(text: str, source: str) -> dict[str, User]:
    """Return the users in *text*, by name. Raises `SettingsError`, which names *source*."""
    try:
        found = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        # Not only TOMLDecodeError: numbers may be too long, and arrays too deep.
        raise SettingsError(f"{source}: is not TOML: {error}") from error
    try:
        return _checked(msgspec.convert(found, _File).users)
    except (msgspec.ValidationError, InvalidFormat) as error:
        raise SettingsError(f"{source}: {error}") from error


def to_toml(users: Mapping[str, User]) -> str:
    """Return *users* as the text of a file."""
    lines = [_HEADER]
    for name, user in users.items():
        lines += [f"[users.{_text(name)}]", *_fields(rights=user.rights, queues=user.queues)]
        lines += _fields(tls=user.tls) if user.tls else []
        for token in user.tokens:
            known = {key: value for key, value in msgspec.structs.asdict(token).items() if value}
            lines += [f"[[users.{_text(name)}.tokens]]", *_fields(**known)]
        lines.append("")
    return "\n".join(lines)


def from_json(raw: Mapping[bytes, bytes], source: str) -> dict[str, User]:
    """Return the users in *raw*, by name. Raises `SettingsError`, which names *source*."""
    users: dict[str, User] = {}
    for key, value in raw.items():
        name = key.decode("utf-8", "replace")
        try:
            users[name] = msgspec.json.decode(value, type=User)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise SettingsError(f"{source}: user {name!r}: {error}") from error
    try:
        return _checked(users)
    except InvalidFormat as error:
        raise SettingsError(f"{source}: {error}") from error


def to_json(user: User) -> bytes:
    """Return *user* as the value of its field."""
    return msgspec.json.encode(user)


def _checked(users: dict[str, User]) -> dict[str, User]:
    if len(users) > MAX_USERS:
        raise InvalidFormat("users", len(users), f"at most {MAX_USERS}")
    for name, user in users.items():
        check_user(name, user)
    return users


def _fields(**values: Any) -> Iterable[str]:
    return [f"{key} = {_value(value)}" for key, value in values.items()]


def _value(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if isinstance(value, list):
        return f"[{', '.join(_text(each) for each in value)}]"
    return _text(str(value))


def _text(text: str) -> str:
    # JSON's strings are TOML's, as long as every character can be printed.
    return json.dumps(text, ensure_ascii=False)
