"""``python -m fnx.as_jax script.py [arguments]``: run a program written for JAX on fnx."""

from __future__ import annotations

import os
import runpy
import sys
from types import ModuleType

from fnx.as_jax import install

USAGE = "usage: python -m fnx.as_jax (script.py | -m module | -c code) [arguments]"


def main() -> None:
    """Run the program named on the command line, as Python would."""
    given = sys.argv[1:]
    if not given or given[0] in ("-h", "--help") or given[0] in ("-m", "-c") and len(given) < 2:
        print(USAGE, file=sys.stdout if given[:1] in (["-h"], ["--help"]) else sys.stderr)
        sys.exit(0 if given[:1] in (["-h"], ["--help"]) else 2)
    install()
    if given[0] == "-m":
        sys.argv = given[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(given[1], run_name="__main__", alter_sys=True)
    elif given[0] == "-c":
        sys.argv = ["-c", *given[2:]]
        sys.path[0] = ""
        program = sys.modules["__main__"] = ModuleType("__main__")  # for pickle
        exec(compile(given[1], "<string>", "exec"), program.__dict__)
    else:
        sys.argv = given
        sys.path[0] = os.path.dirname(os.path.abspath(given[0]))
        runpy.run_path(given[0], run_name="__main__")


if __name__ == "__main__":
    main()
