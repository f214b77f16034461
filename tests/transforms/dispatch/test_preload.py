"""What the first process of these sources preloads, and what the next one does not."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys, time
import fnx
import fnx.numpy as np
x = np.asarray([1.0, 2.0])
until = time.monotonic() + 20
while {wait} and "fnx.transforms.autodiff.reverse" not in sys.modules and time.monotonic() < until:
    time.sleep(0.01)
time.sleep(0.1)
print("fnx.lower.pipeline" in sys.modules)
print(fnx.jit(lambda x: x * 3)(x).tolist())
"""


def run(program: str, folder: Path) -> list[str]:
    env = {**os.environ, "FNX_CACHE_DIR": str(folder), "FNX_DEVICE": "cpu"}
    return subprocess.run([sys.executable, "-c", program], env=env, text=True, check=True,
                          capture_output=True).stdout.split("\n")


def test_the_compiler_is_loaded_ahead_only_where_nothing_is_on_disk(tmp_path: Path) -> None:
    assert run(PROGRAM.format(wait=True), tmp_path)[:2] == ["True", "[3.0, 6.0]"]
    assert run(PROGRAM.format(wait=False), tmp_path)[:2] == ["False", "[3.0, 6.0]"]


def test_a_process_that_ends_at_once_leaves_its_kernels(tmp_path: Path) -> None:
    program = """
import fnx, fnx.numpy as np
from fnx.backends.device.base import get_device
fnx.jit(lambda x: np.sin(x) @ x)(np.ones((4, 4))).block_until_ready()
print(get_device("cpu").stats()["compiled"])
"""
    assert int(run(program, tmp_path)[0]) > 0
    assert run(program, tmp_path)[0] == "0"


def test_a_process_may_end_or_fork_while_modules_are_loaded(tmp_path: Path) -> None:
    program = """
import os, fnx, fnx.numpy as np
x = np.asarray([1.0])
pid = os.fork()
print((x + 1).tolist(), flush=True)
if pid:
    assert os.waitpid(pid, 0)[1] == 0
"""
    for i in range(2):
        assert "".join(run(program, tmp_path / str(i))) == "[2.0][2.0]"
        assert run("import fnx.numpy as np; np.asarray([1.0])", tmp_path / f"end{i}") == [""]
