"""``python -m fnx``: versions, devices, settings, and where to read on."""

from __future__ import annotations

import argparse

import fnx
from fnx.environment_info import show_versions

POINTERS = """
python -m fnx.as_jax script.py    runs a script written for JAX
print(fnx.config)                 lists all settings; docs/settings.md has their variables
help(fnx.jit)                     describes a function; docs/index.md says where to start
"""


def main() -> None:
    """Print what a bug report needs, and pointers."""
    parser = argparse.ArgumentParser(
        "python -m fnx", description="Print versions, devices and settings.", epilog=POINTERS,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"fnx {fnx.__version__}")
    parser.parse_args()
    show_versions()
    print(f"devices: {', '.join(map(str, fnx.devices()))}")
    print(POINTERS.rstrip())


if __name__ == "__main__":
    main()
