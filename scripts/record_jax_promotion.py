"""Record JAX's dtype, weak type and values of elementwise functions of every pair of kinds.

    python scripts/record_jax_promotion.py

The kinds are those of tests/golden/kinds.py: an array of each dtype, weak arrays, Python numbers.
The result is tests/golden/promotion.json: for each function a row of answers, as ``[dtype, weak,
values]``, or the class of JAX's error.
"""

from __future__ import annotations

import importlib.util
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden"


def kinds_module() -> ModuleType:
    """Import tests/golden/kinds.py, by path, so that tests/ need not be a package."""
    spec = importlib.util.spec_from_file_location("kinds", GOLDEN / "kinds.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def answer(f: Callable[..., Any], operands: list[Any]) -> Any:
    """Return [dtype, weak, values] of f of these operands, or the name of its error."""
    try:
        x = f(*operands)
    except (TypeError, ValueError, OverflowError) as error:
        return type(error).__name__
    values = [float(f"{v:.7g}") if isinstance(v, float) else v
              for v in np.asarray(x).ravel().tolist()]
    return [str(x.dtype), int(x.weak_type), values]


def main() -> None:
    warnings.simplefilter("ignore")
    kinds = kinds_module()
    modules = {"jnp": jax.numpy, "lax": jax.lax, "nn": jax.nn}
    operands = kinds.operands(jax.numpy)
    rows = [f'"jax": {json.dumps(jax.__version__)}']
    for name, arity in kinds.FUNCTIONS.items():
        room, _, function = name.partition(".")
        f = getattr(modules[room], function)
        answers = [answer(f, [operands[k] for k in case]) for case in kinds.cases(arity)]
        rows.append(f"{json.dumps(name)}: {json.dumps(answers, separators=(',', ':'))}")
    (GOLDEN / "promotion.json").write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main()
