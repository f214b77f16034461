"""All laws on devices, in parts that are kept: what is interrupted goes on where it was.

    python scripts/device_laws.py                              all parts that are not done yet
    python scripts/device_laws.py --only matrix                those with this in their name
    python scripts/device_laws.py --seconds 600                none is begun after that

A part is a file of tests with many more examples, a file of the laws with OpenCL as the configured
device, or a fortieth of the transform matrix's words that end in jit. Of each a line is written to
``--state`` when it has ended, and what it said beside it; a part that failed is run again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
MATRIX = 40  # parts
LIMIT = 3600  # seconds of a part

Part = tuple[str, list[str], dict[str, str]]


def parts() -> Iterator[Part]:
    """Name, arguments of Python, and variables of all parts."""
    test = ["-m", "pytest", "-q", "-p", "no:cacheprovider"]
    for path in sorted((ROOT / "tests" / "devices").glob("test_*.py")):
        yield f"devices/{path.stem}", [*test, str(path)], {"FNX_TEST_EXAMPLES": "200"}
    for path in [ROOT / "tests" / "tiny", *sorted((ROOT / "tests" / "laws").glob("test_*.py"))]:
        yield f"opencl/{path.stem}", [*test, str(path)], {"FNX_DEVICE": "opencl"}
    for i in range(1, MATRIX + 1):
        yield f"matrix/{i}", ["-W", "ignore", "-m", "tests.laws.matrix", "--device", "opencl",
                              "--part", f"{i}/{MATRIX}"], {}


def run(part: Part, state: Path) -> int:
    """Run one; what it says stands in a file of its name."""
    name, arguments, variables = part
    log = state / f"{name.replace('/', '_')}.log"
    start = time.monotonic()
    with log.open("w") as file:
        try:
            code = subprocess.run([sys.executable, *arguments], cwd=ROOT, timeout=LIMIT,
                                  stdout=file, stderr=subprocess.STDOUT,
                                  env={**os.environ, **variables, "CI": "1"}).returncode
        except subprocess.TimeoutExpired:
            code = 124
    with (state / "done").open("a") as file:
        file.write(f"{name} {code} {time.monotonic() - start:.0f}\n")
    lines = log.read_text().splitlines()
    said = [line for line in lines if line.startswith(("FAILED", "ERROR"))] or lines[-1:]
    print(f"{name:<44} {'ok' if not code else f'failed ({code}): {log}'}", flush=True)
    for line in said if code else ():
        print(f"    {line[:200]}", flush=True)
    return code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--state", type=Path, default=ROOT / "build" / "device_laws")
    parser.add_argument("--only", default="", help="a part of the names")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    options = parser.parse_args()
    options.state.mkdir(parents=True, exist_ok=True)
    kept = options.state / "done"
    lines = [line.split() for line in kept.read_text().splitlines()] if kept.exists() else []
    done = {name for name, code, _ in lines if code == "0"}
    start, failed, left = time.monotonic(), 0, 0
    for part in parts():
        if part[0] in done or options.only not in part[0]:
            continue
        if time.monotonic() - start > options.seconds:
            left += 1
            continue
        failed += bool(run(part, options.state))
    print(f"{failed} parts failed, {left} are left")
    return bool(failed or left)


if __name__ == "__main__":
    sys.exit(main())
