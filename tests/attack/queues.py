"""Random commands on the queues of soft devices, planted faults, and devices that fail.

    python -m tests.attack.queues --count 5000             graphs equal sequential execution
    python -m tests.attack.queues --planted --count 70     each a few faults: a result is wrong
    python -m tests.attack.queues --failures --count 100   a queue dies or hangs: reopened
"""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np

import fnx
import fnx.numpy as jnp
from fnx.backends.device.base import get_device
from fnx.backends.device.queues import KINDS
from fnx.backends.soft import Disturbance
from fnx.core.support.config import override
from fnx.core.support.errors import DeviceError
from tests.attack.seeds import attack
from tests.devices.soft_graphs import check_graph, is_detected, planted_faults


def planted(seed: int) -> str:
    """Raise if a planted fault changes no result in any order."""
    faults = planted_faults(seed)
    for name, plant in faults:
        assert is_detected(plant, seed), f"{name}: no result is wrong"
    return f"{len(faults)} faults"


def sines(x: Any) -> Any:
    """Compute in several kernels, with a loop."""
    return fnx.lax.fori_loop(0, 3, lambda i, y: jnp.sin(y @ x), x)


def fails(seed: int) -> str:
    """Raise if a failure of a queue is not an error that names a command and a line, or if the
    device does not work afterwards."""
    choose = random.Random(seed)
    fault, queue = choose.choice(["dies", "hangs"]), choose.choice(KINDS)
    x = np.eye(8, dtype=np.float32)
    with override(device="soft", time_limit=1.0):
        f, device = fnx.jit(sines), get_device("soft")
        want = np.asarray(f(jnp.asarray(x)))
        kernels = [run for run in fnx.profile(f)(jnp.asarray(x)).runs
                   if not run.name.startswith("copy to")]
        choices: Any = {fault: {queue: choose.randrange(len(kernels)) if queue == "compute" else 0}}
        device.driver.disturb(Disturbance(**choices))  # type: ignore[attr-defined]
        try:
            with override(time_limit=0.05):
                np.asarray(f(jnp.asarray(x)))
        except DeviceError as error:
            assert "in flight: " in str(error) and "queues.py:" in str(error), str(error)
        else:
            raise AssertionError("no error")
        np.testing.assert_array_equal(np.asarray(f(jnp.asarray(x))), want)
    return f"{queue} {fault}"


def main() -> int:
    """Check what the command line says."""
    for option, what, check in (("--planted", "graphs with faults", planted),
                                ("--failures", "failures", fails)):
        if option in sys.argv:
            sys.argv.remove(option)
            return attack(__doc__, what, check)
    return attack(__doc__, "graphs", check_graph)


if __name__ == "__main__":
    sys.exit(main())
