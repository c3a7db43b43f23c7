"""The Python that Spark starts on this machine: the one that runs here, without Spark's zips.

Spark puts its own copy of PySpark, as a zip, before all that is installed. To import from it takes
0.9 s of a processor, from the files beside it 0.2 s, and a query starts several processes.
"""

from __future__ import annotations

import hashlib
import shlex
import sys
from typing import Final

from tambomq.spark import cache

_SCRIPT: Final = """#!/bin/sh
left=
IFS=:
for each in $PYTHONPATH; do
  case $each in
    */lib/pyspark.zip | */lib/py4j-*.zip) ;;
    *) left=$left${left:+:}$each ;;
  esac
done
PYTHONPATH=$left exec %s "$@"
"""


def program() -> str:
    """Return what to start; this Python itself, where nothing can be kept for later."""
    if not cache.lasts():
        return sys.executable
    script = (_SCRIPT % shlex.quote(sys.executable)).encode()
    # One for each environment: several may be in use.
    kept = cache.folder() / "python" / hashlib.sha256(script).hexdigest()[:16] / "python"
    try:
        if not kept.exists():
            cache.put(kept, script, mode=0o755)
    except OSError:
        return sys.executable
    return str(kept)
