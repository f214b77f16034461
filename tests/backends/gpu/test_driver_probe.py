"""Drivers are probed in a child process: if it crashes, opening the device raises an error."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fnx.backends.gpu import driver_probe
from fnx.core.support.config import override
from fnx.core.support.errors import DeviceError


@pytest.fixture(autouse=True)
def _nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(driver_probe, "_outcomes", {})
    with override(cache_dir=str(tmp_path / "cache")):
        yield


def child(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Set the script that the child runs instead of a kernel."""
    monkeypatch.setattr(driver_probe, "_PROBE_SCRIPT", script)


@pytest.mark.parametrize("code, said", [
    ("import os, sys; print('no linker', file=sys.stderr, flush=True); os.abort()",
     r"opencl: expected a driver that runs a kernel, it ends the process \(SIGABRT\); no linker"),
    ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
    ("import time; time.sleep(60)", "got none done in 1 s"),
])
def test_what_ends_or_hangs_the_child_is_an_error(monkeypatch, code, said):
    child(monkeypatch, code)
    monkeypatch.setattr(driver_probe, "TIMEOUT", 1.0 if "sleep" in code else 60.0)
    for _ in range(2):
        with pytest.raises(DeviceError, match=said):
            driver_probe.probe_driver("opencl")


@pytest.mark.parametrize("code", ["pass", "raise ValueError", "import os; os.kill(os.getpid(), 9)"])
def test_what_the_driver_returns_is_for_who_opens_it(monkeypatch, code):
    child(monkeypatch, code)
    driver_probe.probe_driver("opencl")
    assert [*driver_probe._outcomes.values()] == [b""]  # by a child, and it was no crash


def test_a_driver_is_tried_once_for_an_environment(monkeypatch, tmp_path):
    tried = tmp_path / "tried"
    child(monkeypatch, f"open({str(tried)!r}, 'a').write('x')")
    tools = tmp_path / "tools"
    tools.mkdir()
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    for _ in range(2):
        driver_probe.probe_driver("opencl")
        driver_probe._outcomes.clear()  # as in the next process
    assert tried.read_text() == "x"
    (tools / "ld").write_text("")  # installed
    driver_probe.probe_driver("opencl")
    assert tried.read_text() == "xx"
    monkeypatch.setenv("POCL_DEVICES", "basic")
    driver_probe.probe_driver("opencl")
    assert tried.read_text() == "xxx"


def test_in_the_child_nothing_is_tried(monkeypatch):
    child(monkeypatch, "import os; os.abort()")
    monkeypatch.setenv(driver_probe._CHILD_VARIABLE, "opencl")
    driver_probe.probe_driver("opencl")
    assert not driver_probe._outcomes


def test_without_tools_a_driver_is_there_or_named_but_the_process_lives(tmp_path):
    """PoCL aborts if it finds no linker."""
    (tmp_path / "false").write_text("#!/nothing\n")
    (tmp_path / "false").chmod(stat.S_IRWXU)
    code = """
import fnx, fnx.numpy as jnp
try:
    with fnx.core.support.config.override(device="opencl"):
        print(fnx.jit(lambda x: x * 2)(jnp.ones(3)).tolist())
except fnx.errors.DeviceError as why:
    print("refused", why)
print(fnx.jit(lambda x: x * 2)(jnp.ones(3)).tolist())
"""
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=False,
                          env=os.environ | {"PATH": str(tmp_path),
                                            "POCL_CACHE_DIR": str(tmp_path / "pocl"),
                                            "FNX_CACHE_DIR": str(tmp_path / "cache")})
    first, *_, last = done.stdout.splitlines()
    assert done.returncode == 0 and last == "[2.0, 2.0, 2.0]", done.stderr
    assert first == last or first.startswith("refused") and "opencl" in first
