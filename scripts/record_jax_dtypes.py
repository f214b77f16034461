"""Record the dtype and weak type of JAX's functions of every pair of dtypes, in both x64 modes.

    python scripts/record_jax_dtypes.py

The operands are those of tests/golden/kinds.py: ``TYPES`` and weak ones. JAX only traces; nothing
is computed. The result is tests/golden/dtypes.json: for each mode and function a text with two
letters per case: the dtype (``kinds.CODES``) and "w" or "-"; "!!" if JAX refuses.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from typing import Any

import jax
from record_jax_promotion import GOLDEN, kinds_module


def main() -> None:
    warnings.simplefilter("ignore")
    kinds = kinds_module()
    modules = {"jnp": jax.numpy, "lax": jax.lax, "nn": jax.nn}

    def answer(f: Callable[..., Any], case: tuple[str, ...]) -> str:
        try:
            out = kinds.traced(jax, f, case)
        except (TypeError, ValueError, OverflowError):
            return "!!"
        return str(kinds.CODES[str(out.dtype)]) + "-w"[out.weak_type]

    rows = [f'"jax": {json.dumps(jax.__version__)}']
    for x64 in (False, True):
        with jax.enable_x64(x64):
            for name, arity in kinds.FUNCTIONS.items():
                room, _, function = name.partition(".")
                f = getattr(modules[room], function)
                text = "".join(answer(f, case) for case in kinds.typed_cases(arity, x64))
                rows.append(f'"{name} {int(x64)}": "{text}"')
    (GOLDEN / "dtypes.json").write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main()
