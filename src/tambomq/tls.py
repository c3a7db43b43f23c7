"""Server-side TLS: certificate, key and client CA, by their paths."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from tambomq.errors import SettingsError


@dataclass(frozen=True, slots=True)
class ServerTls:
    """A certificate with its key; with *client_ca*, clients need a certificate signed by it."""

    cert: Path
    key: Path
    client_ca: Path | None = None

    def context(self) -> ssl.SSLContext:
        """Return the context for sockets. Raises `SettingsError`."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.cert, self.key)
            if self.client_ca:
                context.load_verify_locations(self.client_ca)
                context.verify_mode = ssl.CERT_REQUIRED
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(f"cannot use the TLS files {self._files()}: {error}") from error
        return context

    def pems(self) -> tuple[bytes, bytes, bytes | None]:
        """Return certificate, key and client CA as they are written. Raises `SettingsError`."""
        # Check the files here, where the error can name them.
        self.context()
        ca = self.client_ca.read_bytes() if self.client_ca else None
        return self.cert.read_bytes(), self.key.read_bytes(), ca

    def _files(self) -> str:
        return ", ".join(str(each) for each in (self.cert, self.key, self.client_ca) if each)
