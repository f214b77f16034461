"""Run a program with JAX, changing only its imports of fnx and fnx.numpy.

    python scripts/run_in_jax.py examples/vae.py --epochs 20
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

IMPORTS = {r"^import fnx$": "import jax as fnx",
           r"^import fnx\.numpy as jnp$": "import jax.numpy as jnp"}


def in_jax(path: str) -> ModuleType:
    """Return the program as a module that has imported JAX in place of fnx."""
    source = Path(path).read_text()
    for ours, theirs in IMPORTS.items():
        source = re.sub(ours, theirs, source, flags=re.MULTILINE)
    module = ModuleType("in_jax")
    sys.modules[module.__name__] = module  # dataclasses look up annotations there
    exec(compile(source, path, "exec"), vars(module))
    return module


if __name__ == "__main__":
    in_jax(sys.argv[1]).main(sys.argv[2:])
