"""A pipeline of copies and kernels, and its profile on the software device."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

import fnx
import fnx.numpy as jnp
from fnx.backends.device.base import get_device
from fnx.backends.soft import Disturbance

KERNEL_SECONDS, COPY_SECONDS = 12e-3, 8e-3  # the least that a command takes


def run_pipeline(f: Any, chunks: Iterable[Any]) -> list[Any]:
    """Copy chunks to the device, call a function of each, copy the results to the host."""
    results = []
    for chunk in chunks:
        results.append(f(jnp.asarray(chunk)))
        results[-1].copy_to_host_async()
    return [np.asarray(y) for y in results]


def soft_pipeline(count: int) -> Any:
    """Return the profile of a pipeline of chunks on the configured software device."""
    device: Any = get_device("soft")
    f = fnx.jit(lambda x: jnp.sin(x) + 1)
    data = np.random.default_rng(0).normal(size=(count, 64)).astype(np.float32)
    run_pipeline(f, data[:1])  # compiled
    device.driver.disturb(Disturbance(durations={
        "compute": KERNEL_SECONDS, "upload": COPY_SECONDS, "download": COPY_SECONDS}))
    with fnx.profile() as seen:
        got = run_pipeline(f, data)
    device.driver.disturb(Disturbance())
    np.testing.assert_allclose(got, np.sin(data) + 1, rtol=1e-5)
    return seen
