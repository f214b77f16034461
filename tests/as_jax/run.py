"""Run a program and print whether JAX's compiler was loaded: ``python -m fnx.as_jax run.py
NAME``."""

import runpy
import sys
from pathlib import Path


def main() -> None:
    name, *arguments = sys.argv[1:]
    path = Path(__file__).with_name("programs") / f"{name}.py"
    sys.argv = [str(path), *arguments]
    runpy.run_path(str(path), run_name="__main__")
    print("jaxlib" in sys.modules)


if __name__ == "__main__":
    main()
