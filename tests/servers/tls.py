"""A self-signed certificate for 127.0.0.1."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Certificate:
    """A self-signed certificate, which is its own authority, and its key."""

    cert: Path
    key: Path

    @property
    def options(self) -> list[str]:
        """The options of a Redis server with it; clients need no certificate."""
        return [
            *("--tls-cert-file", str(self.cert)),
            *("--tls-key-file", str(self.key)),
            *("--tls-ca-cert-file", str(self.cert)),
            *("--tls-auth-clients", "no"),
        ]


SERVER_NAMES = "DNS:localhost,IP:127.0.0.1"


def certificate(folder: Path, name: str = "localhost", names: str = SERVER_NAMES) -> Certificate:
    """Make a certificate in *folder*, with the ``openssl`` command.

    *name* is its common name, *names* are its alternative ones.
    """
    made = Certificate(folder / "cert.pem", folder / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-utf8", "-subj", f"/CN={name}"]
    command += ["-addext", f"subjectAltName={names}"]
    command += ["-keyout", str(made.key), "-out", str(made.cert)]
    subprocess.run(command, check=True, capture_output=True)
    return made
