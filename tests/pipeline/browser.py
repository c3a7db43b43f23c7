"""A real browser, without a window: what it makes of a page, and how that looks."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_MAC = Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome")
_WITHIN_S = 120


def found() -> str | None:
    """Return where a browser is."""
    here = next(filter(None, map(shutil.which, _NAMES)), None)
    return here or (str(_MAC) if _MAC.exists() else None)


def opened(page: Path, *words: str) -> str:
    """Return the page as it is once its scripts have run."""
    with TemporaryDirectory() as home:
        done = subprocess.run(
            [
                *(str(found()), "--headless", "--no-sandbox", "--disable-gpu"),
                *("--disable-dev-shm-usage", f"--user-data-dir={home}", "--window-size=1240,1600"),
                *("--virtual-time-budget=5000", *words, "--dump-dom", page.as_uri()),
            ],
            capture_output=True,
            timeout=_WITHIN_S,
            check=True,
        )
    return done.stdout.decode()
