"""Estimate the parameters of a differential equation from noisy measurements, through its solver.

    python examples/ode.py --out ode.png

Hares and lynxes (Lotka and Volterra): dx/dt = a x - b x y, dy/dt = -c y + d x y. The data are some
twenty counts of both, with errors of ten percent. The solver is a scan of Runge-Kutta steps; the
Gauss-Newton method uses its Jacobian, by forward mode, to find the four rates and the two initial
populations. vmap follows many starting points at once, and the Jacobian at the end tells how
accurately each parameter is known.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

import fnx
import fnx.numpy as jnp

try:
    import matplotlib
    from tqdm import tqdm
except ModuleNotFoundError as error:
    sys.exit(f"{error}. Fix: pip install 'fnx[examples]'")

NAMES = ("a", "b", "c", "d", "hares at 0", "lynxes at 0")
TRUE = np.array([0.55, 0.028, 0.84, 0.026, 30.0, 4.0], "float32")
NOISE = 0.1  # of the logarithm of a count
YEARS = 20.0
STEPS = 40  # of the solver between two measurements


@dataclass(frozen=True)
class Counts:
    """Years, shape (n,), and the logarithms of hares and lynxes then, shape (n, 2)."""

    years: np.ndarray
    logs: np.ndarray


# ---- the equation, its solver -------------------------------------------------------------------


def slope(logs: Any, rates: Any) -> Any:
    """d/dt of the logarithms, in which populations always stay positive."""
    a, b, c, d = rates
    hares, lynxes = jnp.exp(logs)
    return jnp.stack([a - b * lynxes, d * hares - c])


def runge_kutta(logs: Any, rates: Any, dt: Any) -> Any:
    """One step of the classical method, of fourth order."""
    k1 = slope(logs, rates)
    k2 = slope(logs + dt / 2 * k1, rates)
    k3 = slope(logs + dt / 2 * k2, rates)
    k4 = slope(logs + dt * k3, rates)
    return logs + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def solve(theta: Any, count: int, every: int) -> Any:
    """The logarithms at ``count`` equally spaced years; ``theta``: those of the parameters."""
    rates, start = jnp.exp(theta[:4]), theta[4:]
    dt = YEARS / ((count - 1) * every)

    def interval(logs: Any, _: Any) -> tuple[Any, Any]:
        after = fnx.lax.fori_loop(0, every, lambda i, x: runge_kutta(x, rates, dt), logs)
        return after, after

    _, rest = fnx.lax.scan(interval, start, None, length=count - 1)
    return jnp.concatenate([start[None], rest])


def measure(seed: int, count: int) -> Counts:
    noise = np.random.default_rng(seed).normal(size=(count, 2)) * NOISE
    exact = fnx.jit(lambda theta: solve(theta, count, STEPS))(jnp.log(jnp.asarray(TRUE)))
    return Counts(np.linspace(0, YEARS, count), (np.asarray(exact) + noise).astype("float32"))


# ---- fitting --------------------------------------------------------------------------------


def residuals(theta: Any, logs: Any) -> Any:
    """The distance of the solution from the measurements, in standard deviations."""
    return ((solve(theta, len(logs), STEPS) - logs) / NOISE).reshape(-1)


def damped_step(theta: Any, damping: Any, logs: Any) -> tuple[Any, Any, Any]:
    """(theta, damping, loss) after one step of the Levenberg-Marquardt method.

    A step that increases the loss is rejected, and the next one is shorter.
    """
    r = residuals(theta, logs)
    jacobian = fnx.jacfwd(residuals)(theta, logs)
    normal = jacobian.T @ jacobian
    slopes = jacobian.T @ r
    moved = theta - solved(normal + damping * jnp.diag(jnp.diag(normal)), slopes)
    before, after = jnp.sum(r * r), jnp.sum(residuals(moved, logs) ** 2)
    better = after < before  # and finite
    return (jnp.where(better, moved, theta), jnp.clip(jnp.where(better, damping / 3, damping * 4),
                                                      1e-7, 1e7), jnp.where(better, after, before))


def solved(matrix: Any, vector: Any) -> Any:
    """Solve matrix x = vector, for a small positive definite matrix, by Gaussian elimination."""
    n = len(vector)
    rows = jnp.concatenate([matrix, vector[:, None]], axis=1)

    def eliminate(i: Any, rows: Any) -> Any:
        row = rows[i] / rows[i, i]
        return (rows - rows[:, i, None] * row).at[i].set(row)

    return fnx.lax.fori_loop(0, n, eliminate, rows)[:, n]


def fit(counts: Counts, seed: int, starts: int, steps: int) -> tuple[Any, Any]:
    """Return (theta of every start, losses of shape (steps, starts))."""
    draw = np.random.default_rng(seed)
    guess = np.log([0.5, 0.03, 0.5, 0.03, 30.0, 5.0])
    theta = jnp.asarray(guess + 0.4 * draw.normal(size=(starts, 6)), "float32")
    damping = jnp.full(starts, 1.0)
    step = fnx.jit(fnx.vmap(damped_step, in_axes=(0, 0, None)))
    losses = []
    with tqdm(range(steps), unit="step") as bar:
        for _ in bar:
            theta, damping, value = step(theta, damping, counts.logs)
            losses.append(np.asarray(value))
            bar.set_postfix(best=f"{losses[-1].min():.2f}", refresh=False)
    return theta, np.stack(losses)


def deviations(theta: Any, logs: Any) -> np.ndarray:
    """The standard deviation of each logarithm, from the curvature at the minimum."""
    jacobian = np.asarray(fnx.jit(fnx.jacfwd(residuals))(theta, logs), "float64")
    return np.sqrt(np.diag(np.linalg.inv(jacobian.T @ jacobian)))


# ---- report ---------------------------------------------------------------------------------


def plot(path: str, counts: Counts, theta: Any, spread: np.ndarray, losses: np.ndarray) -> None:
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fine = 400
    every = max(1, STEPS * (len(counts.years) - 1) // (fine - 1))
    curve = fnx.jit(lambda t: jnp.exp(solve(t, fine, every)))
    years = np.linspace(0, YEARS, fine)
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(14, 4.2), layout="constrained",
                                                 width_ratios=(5, 3, 3))
    truth = np.asarray(curve(jnp.log(jnp.asarray(TRUE))))
    found = np.asarray(curve(theta))
    for i, (name, color) in enumerate((("hares", "C0"), ("lynxes", "C3"))):
        left.plot(years, truth[:, i], color=color, lw=5, alpha=0.2)
        left.plot(years, found[:, i], color=color, label=name)
        left.plot(counts.years, np.exp(counts.logs[:, i]), "o", color=color, ms=4)
    left.set(xlabel="year", ylabel="thousands", title="counts, fit, and (pale) the truth")
    left.legend()
    middle.semilogy(losses, color="C0", alpha=0.25, lw=1)
    middle.semilogy(losses.min(axis=1), color="k")
    middle.set(xlabel="step", ylabel="sum of squares", title=f"{losses.shape[1]} starts at once")
    places = np.arange(6)
    right.errorbar((np.asarray(theta) - np.log(TRUE)) * 100, places, xerr=200 * spread, fmt="o",
                   capsize=3)
    right.axvline(0, color="0.7")
    right.set(yticks=places, yticklabels=NAMES, xlabel="percent from the truth",
              title="found, with two deviations", ylim=(5.5, -0.5))
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--counts", type=int, default=21, help="how many measurements")
    parser.add_argument("--starts", type=int, default=64, help="followed at once")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="ode.png", help="the picture to write")
    options = parser.parse_args(arguments)

    counts = measure(options.seed, options.counts)
    thetas, losses = fit(counts, options.seed, options.starts, options.steps)
    best = int(np.argmin(losses[-1]))
    spread = deviations(thetas[best], counts.logs)
    plot(options.out, counts, thetas[best], spread, losses)
    print(f"picture       {options.out}")
    for name, true, log, deviation in zip(NAMES, TRUE, np.asarray(thetas[best]), spread):
        print(f"{name:12s}  {np.exp(log):8.4f} +- {np.exp(log) * deviation:.4f}   (true: {true:g})")
    arrived = int(np.sum(losses[-1] < losses[-1].min() * 1.01 + 1))
    print(f"{arrived} of {options.starts} starts arrived; sum of squares {losses[-1].min():.1f} of "
          f"{2 * options.counts - 6} expected")


if __name__ == "__main__":
    main()
