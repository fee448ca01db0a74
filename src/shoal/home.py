"""Where Shoal keeps what it fetches and what it computes once: `$SHOAL_HOME`, else the user's cache."""

import os
from pathlib import Path


def home_folder() -> Path:
    """`$SHOAL_HOME`, else `$XDG_CACHE_HOME/shoal`, else `~/.cache/shoal`."""
    if home := os.environ.get("SHOAL_HOME"):
        return Path(home).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache).expanduser() if cache else Path.home() / ".cache") / "shoal"
