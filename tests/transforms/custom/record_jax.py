"""Record JAX's results for programs.py, for tests that run where JAX is not installed.

    python tests/transforms/custom/record_jax.py        # writes tests/transforms/custom/jax.json

Recorded with JAX 0.10.2 on CPU.
"""

from __future__ import annotations

import json
import pathlib

import jax
from programs import PROGRAMS, flat, refused

jax.float0 = jax.dtypes.float0  # type: ignore[attr-defined]


def raises(call: object) -> bool:
    try:
        call()  # type: ignore[operator]
    except Exception:
        return True
    return False


if __name__ == "__main__":
    found = {"programs": {name: flat(f(jax)) for name, f in PROGRAMS.items()},
             "refused": {name: raises(call) for name, call in refused(jax).items()}}
    path = pathlib.Path(__file__).with_name("jax.json")
    path.write_text(json.dumps(found, indent=1) + "\n")
