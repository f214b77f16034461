"""Run all laws on devices, in parts with saved results, so that an interrupted run can resume.

    python scripts/device_laws.py                              all parts that are not done yet
    python scripts/device_laws.py --only matrix/webgpu         those with this in their name
    python scripts/device_laws.py --seconds 600 --jobs 4       start no part after that time

The parts are: each file of the device tests, with many more examples; each file of laws that uses a
device (tests/laws/device.py); all benchmark workloads, smaller; an epoch of digits; and fortieths
of the compositions in the transform matrix that end in jit. When a part ends, a line is written to
``--state``, with its output next to it; a failed part runs again. The OpenCL compiler's cache is
kept there, too.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.laws.device import LAWS, LAWS_OF_32_BITS

ROOT = Path(__file__).parent.parent
MATRIX = 40  # parts
LIMIT = 3600  # seconds for a part
EXAMPLES = "100"  # of each property in the tests of devices
DEVICES = {"opencl": (*LAWS, "../tiny/test_tiny"), "webgpu": LAWS_OF_32_BITS}
# do not name a device
CONFIGURED = ("custom", "elementwise_tails", "functions", "../tiny/test_tiny")

Part = tuple[str, list[str], dict[str, str]]
_writing = threading.Lock()


def parts() -> Iterator[Part]:
    """Return the name, Python arguments and environment variables of all parts."""
    test = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--all-cases"]
    for device, laws in DEVICES.items():
        for name in laws:
            path = ROOT / "tests" / "laws" / (f"{name}.py" if "/" in name else f"test_{name}.py")
            yield f"laws/{device}/{path.stem}", [*test, str(path.resolve())], {
                "LAWS_DEVICE": device, **({"FNX_DEVICE": device} if name in CONFIGURED else {})}
        yield f"workloads/{device}", ["scripts/device_workloads.py", device], {}
        yield f"digits/{device}", ["examples/digits.py", "--device", device, "--epochs", "1",
                                   "--seeds", "1", "--out", os.devnull], {}
    for path in sorted((ROOT / "tests" / "devices").glob("test_*.py")):
        yield f"devices/{path.stem}", [*test, str(path)], {"TEST_EXAMPLES": EXAMPLES}
    for device in DEVICES:
        for i in range(1, MATRIX + 1):
            yield f"matrix/{device}/{i}", ["-W", "ignore", "-m", "tests.laws.matrix_devices",
                                           device, "--part", f"{i}/{MATRIX}"], {}


def run(part: Part, state: Path) -> int:
    """Run one part; its output goes to a file of its name."""
    name, arguments, variables = part
    log = state / f"{name.replace('/', '_')}.log"
    start = time.monotonic()
    with log.open("w") as file:
        try:
            code = subprocess.run(
                [sys.executable, *arguments], cwd=ROOT, timeout=LIMIT, stdout=file,
                stderr=subprocess.STDOUT, env={
                    **os.environ, "PYTHONPATH": str(ROOT), "CI": "1",
                    "POCL_CACHE_DIR": str(state / "pocl"), **variables}).returncode
        except subprocess.TimeoutExpired:
            code = 124
    spent = time.monotonic() - start
    lines = log.read_text(errors="replace").splitlines()
    said = [line for line in lines if line.startswith(("FAILED", "ERROR"))] or lines[-1:]
    with _writing:
        with (state / "done").open("a") as file:
            file.write(f"{name} {code} {spent:.0f}\n")
        print(f"{name:<44} {spent:5.0f} s  {'ok' if not code else f'failed ({code}): {log}'}",
              flush=True)
        for line in said if code else ():
            print(f"    {line[:200]}", flush=True)
    return code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--state", type=Path, default=ROOT / "build" / "device_laws")
    parser.add_argument("--only", default="", help="a part of the names")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="parts at a time")
    options = parser.parse_args()
    state = options.state.resolve()
    state.mkdir(parents=True, exist_ok=True)
    kept = state / "done"
    lines = [line.split() for line in kept.read_text().splitlines()] if kept.exists() else []
    done = {name for name, code, _ in lines if code == "0"}
    chosen = [part for part in parts() if part[0] not in done and options.only in part[0]]
    start = time.monotonic()

    def within(part: Part) -> int | None:
        """Run a part if there is time left; None if it was not started."""
        if time.monotonic() - start > options.seconds:
            return None
        return run(part, state)

    with ThreadPoolExecutor(options.jobs) as pool:
        codes = list(pool.map(within, chosen))
    failed, left = sum([bool(code) for code in codes]), codes.count(None)
    print(f"{len(codes) - left} parts in {time.monotonic() - start:.0f} s: {failed} failed, "
          f"{left} are left")
    return bool(failed or left)


if __name__ == "__main__":
    sys.exit(main())
