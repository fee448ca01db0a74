"""The folder of downloads and caches: `$SHOAL_HOME`, else the user's cache folder."""

import os
from pathlib import Path


def home_folder() -> Path:
    """`$SHOAL_HOME`, else `$XDG_CACHE_HOME/shoal`, else `~/.cache/shoal`."""
    if home := os.environ.get("SHOAL_HOME"):
        return Path(home).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache).expanduser() if cache else Path.home() / ".cache") / "shoal"
