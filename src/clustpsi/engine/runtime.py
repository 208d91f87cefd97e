"""How JAX is set up for the simulator."""

import os
from pathlib import Path
from typing import Any

import jax
import platformdirs


def cache_folder() -> Path:
    """The folder of what later starts find again."""
    return Path(os.environ.get("CLUSTPSI_CACHE", platformdirs.user_cache_dir("clustpsi")))


def use_compilation_cache() -> None:
    """Keep compiled programs in the user's cache folder, for a fast second start; a folder set by the user stays."""
    config: Any = jax.config
    if config.jax_compilation_cache_dir is None:
        config.update("jax_compilation_cache_dir", str(cache_folder() / "xla"))
        config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
