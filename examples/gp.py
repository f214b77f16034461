"""Learn a Gaussian process: the trend, the period and the noise of a series, with uncertainty.

    python examples/gp.py --out gp.png

The data are noisy measurements of a seasonal signal on a slow trend, with a gap. The covariance is
a sum of a smooth kernel, a periodic one, and white noise; the logarithms of their seven
hyperparameters maximize the marginal likelihood, whose gradient goes through a Cholesky factor.
Several starts are followed at once (vmap). Then the process fills the gap and continues the series,
and says how sure it is.
"""

from __future__ import annotations

import argparse
import functools
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

import fnx
import fnx.numpy as jnp
import fnx.scipy.linalg as linalg

try:
    import matplotlib
    from tqdm import tqdm
except ModuleNotFoundError as error:
    sys.exit(f"{error}. Fix: pip install 'fnx[examples]'")

NAMES = ("trend size", "trend length", "season size", "period", "season shape", "season decay",
         "noise")
PERIOD, NOISE = 1.0, 0.12  # of the data
START = np.log([1.0, 3.0, 1.0, 1.0, 1.0, 10.0, 0.3])


@dataclass(frozen=True)
class Series:
    """Times, and measurements then, both of shape (n,)."""

    times: np.ndarray
    values: np.ndarray


def signal(t: Any) -> Any:
    """What is measured: a season that is no sine, on a trend."""
    season = np.exp(np.sin(2 * np.pi * t / PERIOD)) - 1.27
    return 0.05 * t ** 2 - 0.25 * t + season


def measure(seed: int, count: int) -> Series:
    """Return measurements between 0 and 8, without those between 3.5 and 5."""
    draw = np.random.default_rng(seed)
    t = np.sort(np.concatenate([draw.uniform(0, 3.5, count * 35 // 65),
                                draw.uniform(5, 8, count - count * 35 // 65)]))
    return Series(t.astype("float32"), (signal(t) + NOISE * draw.normal(size=count)).astype(
        "float32"))


# ---- the process --------------------------------------------------------------------------------


def covariance(theta: Any, a: Any, b: Any) -> Any:
    """Return the covariance of the signal at times a and b, shape (len(a), len(b))."""
    size, length, season, period, shape, decay, _ = jnp.exp(theta)
    gap = a[:, None] - b[None, :]
    smooth = size ** 2 * jnp.exp(-0.5 * (gap / length) ** 2)
    wave = jnp.sin(jnp.pi * gap / period) / shape
    periodic = season ** 2 * jnp.exp(-2 * wave ** 2 - 0.5 * (gap / decay) ** 2)
    return smooth + periodic


def factor(theta: Any, times: Any) -> Any:
    """Return the Cholesky factor of the covariance of the measurements."""
    noise = jnp.exp(theta[6]) ** 2 + 1e-5
    return jnp.linalg.cholesky(covariance(theta, times, times) + noise * jnp.eye(len(times)))


def loss(theta: Any, times: Any, values: Any) -> Any:
    """Return the negative logarithm of the marginal likelihood, for each measurement."""
    root = factor(theta, times)
    white = linalg.solve_triangular(root, values, lower=True)
    prior = 0.5 * jnp.sum((theta - jnp.asarray(START, "float32")) ** 2) / 4  # two e-folds
    return (0.5 * white @ white + jnp.log(jnp.diag(root)).sum() + prior) / len(times)


def predict(theta: Any, times: Any, values: Any, at: Any) -> tuple[Any, Any]:
    """Return the mean and the standard deviation of the signal at other times."""
    root = factor(theta, times)
    cross = linalg.solve_triangular(root, covariance(theta, times, at), lower=True)
    white = linalg.solve_triangular(root, values, lower=True)
    variance = jnp.exp(theta[0]) ** 2 + jnp.exp(theta[2]) ** 2 - (cross ** 2).sum(0)
    return cross.T @ white, jnp.sqrt(jnp.maximum(variance, 1e-9))


# ---- learning -----------------------------------------------------------------------------------


def adam_step(state: Any, times: Any, values: Any, rate: float) -> tuple[Any, Any]:
    """One step of Adam (Kingma and Ba, 2015); return (state, loss)."""
    theta, first, second, count = state
    value, slope = fnx.value_and_grad(loss)(theta, times, values)
    slope = jnp.where(jnp.isfinite(slope), slope, 0)
    count = count + 1
    first, second = 0.9 * first + 0.1 * slope, 0.99 * second + 0.01 * slope ** 2
    move = first / (1 - 0.9 ** count) / (jnp.sqrt(second / (1 - 0.99 ** count)) + 1e-8)
    return (theta - rate * move, first, second, count), value


def learn(series: Series, seed: int, starts: int, steps: int) -> tuple[Any, np.ndarray]:
    """Return the hyperparameters of every start, and losses of shape (steps, starts)."""
    draw = np.random.default_rng(seed)
    theta = jnp.asarray(START + 0.3 * draw.normal(size=(starts, len(NAMES))), "float32")
    state = theta, jnp.zeros_like(theta), jnp.zeros_like(theta), jnp.zeros(starts)
    step = fnx.jit(fnx.vmap(functools.partial(adam_step, rate=0.03), (0, None, None)))
    losses = []
    with tqdm(range(steps), unit="step") as bar:
        for _ in bar:
            state, value = step(state, series.times, series.values)
            losses.append(np.asarray(value))
            bar.set_postfix(best=f"{np.nanmin(losses[-1]):.3f}", refresh=False)
    return state[0], np.stack(losses)


# ---- report -------------------------------------------------------------------------------------


def plot(path: str, series: Series, at: np.ndarray, mean: np.ndarray, spread: np.ndarray,
         losses: np.ndarray) -> None:
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 4.2), layout="constrained",
                                         width_ratios=(4, 1))
    left.plot(at, signal(at), color="0.7", lw=4, label="truth")
    left.plot(at, mean, color="C0", label="mean")
    left.fill_between(at, mean - 2 * spread, mean + 2 * spread, color="C0", alpha=0.25,
                      label="two deviations")
    left.plot(series.times, series.values, ".", color="k", ms=4, label="measurements")
    left.set(xlabel="time", title="a gap is filled, and the series continued")
    left.legend(ncols=2)
    right.plot(losses, color="C0", alpha=0.4, lw=1)
    right.set(xlabel="step", ylabel="loss", title=f"{losses.shape[1]} starts at once")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=120, help="how many measurements")
    parser.add_argument("--starts", type=int, default=8, help="followed at once")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="gp.png", help="the picture to write")
    options = parser.parse_args(arguments)

    series = measure(options.seed, options.count)
    thetas, losses = learn(series, options.seed, options.starts, options.steps)
    best = thetas[int(np.nanargmin(losses[-1]))]
    at = np.linspace(-0.5, 10, 400, dtype="float32")
    mean, spread = map(np.asarray, fnx.jit(predict)(best, series.times, series.values, at))
    plot(options.out, series, at, mean, spread, losses)
    print(f"picture       {options.out}")
    for name, log in zip(NAMES, np.asarray(best)):
        print(f"{name:13s} {np.exp(log):8.4f}")
    inside = np.abs(mean - signal(at)) < 2 * spread
    print(f"truth within two deviations at {100 * inside.mean():.0f} % of the times, noise "
          f"{np.exp(float(best[6])):.3f} (true: {NOISE}), period {np.exp(float(best[3])):.3f}")


if __name__ == "__main__":
    main()
