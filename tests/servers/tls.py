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


def certificate(folder: Path) -> Certificate:
    """Make a certificate in *folder*, with the ``openssl`` command."""
    made = Certificate(folder / "cert.pem", folder / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command += ["-keyout", str(made.key), "-out", str(made.cert)]
    subprocess.run(command, check=True, capture_output=True)
    return made
