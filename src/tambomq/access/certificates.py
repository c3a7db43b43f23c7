"""The names in an X.509 certificate, read from its DER (RFC 5280).

For a transport that passes the certificate on as it is. Nothing is verified here: the transport has
done so, and what is no certificate has no names.
"""

from __future__ import annotations

from typing import Final

_COMMON_NAME: Final = bytes.fromhex("550403")
_ALTERNATIVE_NAMES: Final = bytes.fromhex("551d11")
_VERSION, _EXTENSIONS = 0xA0, 0xA3
# By their tags.
_STRINGS: Final = {0x14: "latin-1", 0x1C: "utf-32-be", 0x1E: "utf-16-be"}
_KINDS: Final = {0x82: "DNS", 0x86: "URI"}
# Of the fields after the version.
_SUBJECT: Final = 4


def names_in_der(der: bytes) -> list[str]:
    """Return its common names, and its alternative names of kinds that identify a user."""
    try:
        return _names(der)
    except (ValueError, IndexError):
        return []


def _names(der: bytes) -> list[str]:
    ((_, certificate),) = _elements(der)
    fields = _elements(_elements(certificate)[0][1])
    if fields[0][0] == _VERSION:
        del fields[0]
    found = []
    for _, relative in _elements(fields[_SUBJECT][1]):
        for _, attribute in _elements(relative):
            (_, kind), (string, value) = _elements(attribute)
            if kind == _COMMON_NAME:
                found.append(f"CN:{_text(value, _STRINGS.get(string, 'utf-8'))}")
    for tag, extensions in fields[_SUBJECT + 1 :]:
        if tag == _EXTENSIONS:
            found += _alternative_names(extensions)
    return found


def _alternative_names(extensions: bytes) -> list[str]:
    ((_, each),) = _elements(extensions)
    found = []
    for _, extension in _elements(each):
        # Whether it is critical may stand in between.
        (_, kind), *_, (_, value) = _elements(extension)
        if kind == _ALTERNATIVE_NAMES:
            ((_, names),) = _elements(value)
            found += [
                f"{_KINDS[tag]}:{_text(name)}" for tag, name in _elements(names) if tag in _KINDS
            ]
    return found


def _text(value: bytes, encoding: str = "utf-8") -> str:
    return value.decode(encoding, "backslashreplace")


def _elements(data: bytes) -> list[tuple[int, bytes]]:
    """Return tag and content of each element. Raises `ValueError`, `IndexError`."""
    found, pos = [], 0
    while pos < len(data):
        tag, size, start = data[pos], data[pos + 1], pos + 2
        if size & 0x80:
            start += size & 0x7F
            size = int.from_bytes(data[pos + 2 : start], "big")
        pos = start + size
        if pos > len(data):
            raise ValueError("an element is longer than what contains it")
        found.append((tag, data[start:pos]))
    return found
