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
    argv = sys.argv[1:]
    if not argv or argv[0] in ("-h", "--help") or argv[0] in ("-m", "-c") and len(argv) < 2:
        print(USAGE, file=sys.stdout if argv[:1] in (["-h"], ["--help"]) else sys.stderr)
        sys.exit(0 if argv[:1] in (["-h"], ["--help"]) else 2)
    install()
    if argv[0] == "-m":
        sys.argv = argv[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    elif argv[0] == "-c":
        sys.argv = ["-c", *argv[2:]]
        sys.path[0] = ""
        program = sys.modules["__main__"] = ModuleType("__main__")  # for pickle
        exec(compile(argv[1], "<string>", "exec"), program.__dict__)
    else:
        sys.argv = argv
        sys.path[0] = os.path.dirname(os.path.abspath(argv[0]))
        runpy.run_path(argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
