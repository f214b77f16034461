"""Record the names that the C library defines: exported functions avoid them.

    python scripts/record_c_names.py    writes fnx/exporting/c_names.txt, of this machine's libc
"""

from __future__ import annotations

import ctypes.util
import re
import subprocess
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "fnx" / "exporting" / "c_names.txt"
FOLDERS = [Path("/lib/x86_64-linux-gnu"), Path("/lib64"), Path("/usr/lib")]


def defined(library: str) -> set[str]:
    """Return the names that a shared library defines, except those with a leading underscore."""
    name = ctypes.util.find_library(library)
    assert name is not None, library
    path = next(folder / name for folder in FOLDERS if (folder / name).exists())
    out = subprocess.run(["nm", "-D", "--defined-only", str(path)], capture_output=True,
                         text=True, check=True).stdout
    names = [line.split()[-1].partition("@")[0] for line in out.splitlines()]
    return {name for name in names if re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII)}


if __name__ == "__main__":
    TARGET.write_text("\n".join(sorted(defined("c") | defined("m"))) + "\n")
