"""A wave packet meets a barrier; the barrier is then changed until half of the packet passes.

    python examples/quantum.py --out quantum.png

The Schroedinger equation i dpsi/dt = (-1/2 d2/dx2 + V) psi is solved by splitting: a step
multiplies by exp(-i V dt) in space and by exp(-i k**2 dt / 2) between two Fourier transforms,
which is a scan of complex arrays. The height of the barrier is found by Newton's method, with the
derivative of the transmitted probability by forward mode, through all steps. On a coarse grid the
steps are compared with the matrix exponential of the Hamiltonian and with the general solver of
differential equations.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np

import fnx
import fnx.numpy as jnp
import fnx.scipy.linalg as linalg
from fnx.experimental.ode import odeint

try:
    import matplotlib
    from tqdm import tqdm
except ModuleNotFoundError as error:
    sys.exit(f"{error}. Fix: pip install 'fnx[examples]'")

LENGTH, TIME = 120.0, 22.0
SPEED, WIDTH = 1.6, 5.0  # of the packet, which starts left of the barrier


def grid(n: int) -> tuple[Any, Any]:
    """Return n places, and the wave numbers of their Fourier transform."""
    x = (jnp.arange(n) - n // 2) * (LENGTH / n)
    return x, 2 * jnp.pi * jnp.fft.fftfreq(n, LENGTH / n)


def packet(x: Any) -> Any:
    """Return a Gaussian packet that moves to the right, of norm 1."""
    psi = jnp.exp(-((x + 25) / (2 * WIDTH)) ** 2 + 1j * SPEED * x)
    return psi / jnp.sqrt((jnp.abs(psi) ** 2).sum())


def barrier(x: Any, height: Any) -> Any:
    return height * jnp.exp(-(x / 1.5) ** 2)


def evolve(psi: Any, potential: Any, k: Any, steps: int, every: int = 1) -> tuple[Any, Any]:
    """Return psi after ``steps`` steps of the split operator, and densities on the way."""
    dt = TIME / steps
    half = jnp.exp(-0.5j * dt * potential)
    kinetic = jnp.exp(-0.5j * dt * k ** 2)

    def step(psi: Any, _: Any) -> tuple[Any, Any]:
        psi = half * jnp.fft.ifft(kinetic * jnp.fft.fft(half * psi))
        return psi, None

    def frame(psi: Any, _: Any) -> tuple[Any, Any]:
        psi, _ = fnx.lax.scan(step, psi, None, length=every)
        return psi, jnp.abs(psi) ** 2
    return fnx.lax.scan(frame, psi, None, length=steps // every)


def transmitted(height: Any, n: int, steps: int) -> Any:
    """Return the probability to be right of the barrier at the end."""
    x, k = grid(n)
    psi, _ = evolve(packet(x), barrier(x, height), k, steps)
    return jnp.where(x > 0, jnp.abs(psi) ** 2, 0).sum()


def find_height(target: float, n: int, steps: int, tries: int) -> tuple[float, list[float]]:
    """Return the height that transmits ``target``, and the probabilities on the way."""
    slope = fnx.jit(lambda h: fnx.jvp(lambda h: transmitted(h, n, steps), (h,), (jnp.ones(()),)))
    height, passed = jnp.asarray(SPEED ** 2 / 2, "float32"), []
    with tqdm(range(tries), unit="try") as bar:
        for _ in bar:
            value, rate = slope(height)
            passed.append(float(value))
            height = height - jnp.clip((value - target) / rate, -0.3, 0.3)
            bar.set_postfix(passed=f"{passed[-1]:.4f}", refresh=False)
    return float(height), passed


def check(n: int = 64) -> tuple[float, float]:
    """Return the distances of the steps from the matrix exponential, and from odeint."""
    x, k = grid(n)
    potential = barrier(x, 1.0)
    waves = jnp.fft.fft(jnp.eye(n), axis=0)
    hamiltonian = jnp.fft.ifft(0.5 * k[:, None] ** 2 * waves, axis=0) + jnp.diag(potential)
    exact = linalg.expm(-1j * TIME * hamiltonian) @ packet(x)
    split, _ = evolve(packet(x), potential, k, 4000)
    solved = odeint(lambda psi, t: -1j * (hamiltonian @ psi), packet(x),
                    jnp.asarray([0.0, TIME]), rtol=1e-6, atol=1e-7)[-1]
    return float(jnp.abs(split - exact).max()), float(jnp.abs(solved - exact).max())


def plot(path: str, n: int, steps: int, height: float, passed: list[float]) -> None:
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    x, k = grid(n)
    _, densities = fnx.jit(lambda h: evolve(packet(x), barrier(x, h), k, steps, steps // 100))(
        height)
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.4), layout="constrained",
                                         width_ratios=(3, 1))
    left.imshow(np.sqrt(np.asarray(densities)), origin="lower", aspect="auto", cmap="magma",
                extent=(-LENGTH / 2, LENGTH / 2, 0, TIME))
    left.axvline(0, color="w", alpha=0.3, lw=6)
    left.set(xlabel="place", ylabel="time", title="half of the packet passes the barrier")
    right.plot(passed, "o-")
    right.axhline(0.5, color="0.7")
    right.set(xlabel="try", ylabel="probability to pass", title="Newton's method")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--grid", type=int, default=1024, help="number of places")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--tries", type=int, default=8)
    parser.add_argument("--target", type=float, default=0.5, help="the probability to pass")
    parser.add_argument("--out", default="quantum.png", help="the picture to write")
    options = parser.parse_args(arguments)

    from_expm, from_odeint = check()
    height, passed = find_height(options.target, options.grid, options.steps, options.tries)
    plot(options.out, options.grid, options.steps, height, passed)
    print(f"picture       {options.out}")
    print(f"distance of the steps from expm: {from_expm:.1e}, of odeint: {from_odeint:.1e}")
    print(f"a barrier of height {height:.4f} lets {passed[-1]:.5f} pass; the packet's energy is "
          f"{SPEED ** 2 / 2:.3f}")


if __name__ == "__main__":
    main()
