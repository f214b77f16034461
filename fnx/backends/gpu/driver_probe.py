"""Trial of a driver in a child process, as some drivers abort the process that uses them.

    require("opencl")       a child opens the device and runs a kernel, once per environment
    -> DeviceError          if that aborted, crashed or hung, with what the driver printed

PoCL calls ``abort`` if it finds no linker, for instance. The outcome is cached on disk for as long
as the environment is unchanged: variables, the directories of PATH and of drivers. Errors that the
driver returns are ignored here: opening the device reports them.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Mapping

from fnx.backends.disk.cache import DiskCache, directory
from fnx.core.support.errors import DeviceError
from fnx.core.support.source_digests import source_digest

TIMEOUT = 60.0  # seconds to open a device and run one kernel
_CHILD_VARIABLE = "TRIAL_OF_FNX_DRIVER"  # set in the child: the device under trial
# A kernel that is in no driver's own cache, so that its whole compiler runs.
_PROBE_SCRIPT = ("import sys; sys.path[:] = {path!r}; import fnx, fnx.numpy as jnp; "
                 "fnx.jit(lambda x: x * {number!r})(jnp.ones(3)).block_until_ready()")
_CRASHES = {signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE}
_VARIABLES = ("PATH", "HOME", "TMPDIR", "XDG_", "LD_", "OCL_", "OPENCL_", "POCL_", "VK_", "WGPU_",
              "MESA_", "LP_")
_DRIVERS = ("/etc/OpenCL/vendors", "/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d", "/usr/lib",
            "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu")
_MAX_LINES, _MAX_LINE = 3, 200  # of the driver's output
_outcomes: dict[bytes, bytes] = {}  # by environment; empty: it runs kernels


def probe_driver(name: str) -> None:
    """Try a driver, once per environment.

    Raises:
        DeviceError: it ends the process that uses it, or hangs.
    """
    if os.environ.get(_CHILD_VARIABLE) == name or not sys.executable or \
            getattr(sys, "frozen", False):
        return
    key = _environment_key(name, os.environ)
    outcome = _outcomes.get(key)
    if outcome is None:
        disk = DiskCache(directory())
        outcome = disk.get(key)
        if outcome is None:
            outcome = _run_probe(name)
            disk.put(key, outcome, f"trial of the driver of {name}")
        _outcomes[key] = outcome
    if outcome:
        raise DeviceError(f"{name}: {outcome.decode()}",
                          hint="fix the problem that the driver reports, or set "
                               'fnx.config.device = "cpu"; '
                               "fnx.cache.clear() forgets this trial")


def _environment_key(name: str, variables: Mapping[str, str]) -> bytes:
    """Return a cache key of all that a driver's behavior depends on.

    Installing or removing a program changes the modification time of its directory.
    """
    relevant = sorted([(k, v) for k, v in variables.items() if k.startswith(_VARIABLES)])
    folders = (*variables.get("PATH", "").split(os.pathsep), *_DRIVERS)
    times = [os.stat(f).st_mtime_ns for f in folders if os.path.isdir(f)]
    return repr(("trial", name, sys.executable, relevant,
                 times)).encode() + source_digest(("backends",))


def _run_probe(name: str) -> bytes:
    """Run the trial. Return what is wrong; empty: nothing, or nothing that ends a process."""
    code = _PROBE_SCRIPT.format(path=sys.path, number=random.random())
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FNX_")}
    environment |= {_CHILD_VARIABLE: name, "FNX_DEVICE": name, "FNX_CACHE_DIR": ""}
    try:
        completed = subprocess.run([sys.executable, "-c", code], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   timeout=TIMEOUT, env=environment, check=False)
    except subprocess.TimeoutExpired:
        return f"expected a driver that runs a kernel, got none done in {TIMEOUT:.0f} s".encode()
    except OSError:  # no process can be started
        return b""
    if -completed.returncode not in _CRASHES:
        return b""
    output_lines = [line[:_MAX_LINE]
                    for line in completed.stderr.decode(errors="replace").splitlines()
                    if line.strip()]
    signal_name = signal.Signals(-completed.returncode).name
    return (f"expected a driver that runs a kernel, it ends the process ({signal_name})"
            + "".join([f"; {line}" for line in output_lines[:_MAX_LINES]])).encode()
