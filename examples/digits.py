"""Train a small network to read handwritten digits, with one jitted function as the training step.

The step (forward, backward and Adam's update) is traced once for each batch shape, lowered into a
handful of kernels, and from then on replayed as one command buffer with no Python inside.

    python examples/digits.py --seeds 5 --out digits.png
    python examples/digits.py --conv

The data are the 1,797 digits of scikit-learn: images of 8 x 8 pixels with values 0 to 16.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

import fnx
import fnx.numpy as jnp

try:
    import matplotlib
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    from tqdm import tqdm
except ModuleNotFoundError as error:
    sys.exit(f"{error}. Fix: pip install 'fnx[examples]'")

SIZES = (64, 128, 128, 10)  # of the layers
CHANNELS = (1, 32, 64, 64)  # of the convolutions; then layers of HEAD
HEAD = (64 * 2 * 2, 128, 10)
SHIFT = 1  # pixels by which the images for convolutions are shifted at random
RATE = 2e-3  # of Adam at the start; falls to zero along half a cosine
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
DECAY = 1e-2  # decoupled weight decay
SMOOTHING = 0.1  # of the labels: the share of the target spread over all ten digits


# ---- data -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Digits:
    """Images of shape (n, 64), float32, roughly centered; labels of shape (n,), int32."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def load() -> Digits:
    """Load the digits. One fifth of each digit is for the test; the split is the same in every
    run."""
    images, labels = load_digits(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(
        (images / 16 - 0.3).astype("float32"), labels.astype("int32"),
        test_size=0.2, stratify=labels, random_state=0)
    return Digits(x_train, y_train, x_test, y_test)


def batches(key: Any, data: Digits, size: int, shift: int = 0) -> list[tuple[Any, Any]]:
    """One epoch in a random order; the last batch may be shorter."""
    order_key, shift_key = fnx.random.split(key)
    n = len(data.x_train)
    order = np.argsort(np.asarray(fnx.random.bits(order_key, (n,))))
    x = shifted(shift_key, data.x_train, shift)
    parts = [order[start:start + size] for start in range(0, n, size)]
    return [(x[part], data.y_train[part]) for part in parts]


def shifted(key: Any, x: np.ndarray, most: int) -> np.ndarray:
    """Shift each image by up to so many pixels in a random direction."""
    if not most:
        return x
    at = np.asarray(fnx.random.randint(key, (2, len(x)), 0, 2 * most + 1))
    wide = np.pad(x.reshape(-1, 8, 8), ((0, 0), (most, most), (most, most)),
                  constant_values=float(x.min()))
    rows, columns = (a[:, None] + np.arange(8) for a in at)
    moved = wide[np.arange(len(x))[:, None, None], rows[:, :, None], columns[:, None, :]]
    return moved.reshape(x.shape)


# ---- model ----------------------------------------------------------------------------------


def dense(key: Any, sizes: tuple[int, ...]) -> list[tuple[Any, Any]]:
    """(weight, bias) of each layer, with He et al.'s scale for layers that end in a relu."""
    keys = fnx.random.split(key, len(sizes) - 1)
    return [(fnx.random.normal(k, (m, n)) * math.sqrt(2 / m), jnp.zeros(n))
            for k, m, n in zip(keys, sizes, sizes[1:])]


def init(key: Any, conv: bool = False) -> dict[str, Any]:
    """The parameters of a plain network, or of one that begins with convolutions of 3 x 3."""
    if not conv:
        return {"dense": dense(key, SIZES)}
    key, *keys = fnx.random.split(key, len(CHANNELS))
    kernels = [(fnx.random.normal(k, (n, m, 3, 3)) * math.sqrt(2 / (9 * m)), jnp.zeros((n, 1, 1)))
               for k, m, n in zip(keys, CHANNELS, CHANNELS[1:])]
    return {"conv": kernels, "dense": dense(key, HEAD)}


def predict(params: Any, x: Any) -> Any:
    """Logits of shape (n, 10)."""
    if "conv" in params:
        x = features(params["conv"], x.reshape(-1, 1, 8, 8))
    for w, b in params["dense"][:-1]:
        x = fnx.nn.relu(x @ w + b)
    w, b = params["dense"][-1]
    return x @ w + b


def features(params: Any, x: Any) -> Any:
    """Convolutions; each but the first is followed by a max-pooling of 2 x 2 pixels."""
    for i, (kernel, b) in enumerate(params):
        x = fnx.nn.relu(fnx.lax.conv_general_dilated(x, kernel, (1, 1), "SAME") + b)
        if i:
            x = fnx.lax.reduce_window(x, -jnp.inf, fnx.lax.max, (1, 1, 2, 2), (1, 1, 2, 2),
                                      "VALID")
    return x.reshape(len(x), -1)


def loss(params: Any, x: Any, y: Any) -> Any:
    """Mean cross entropy with smoothed labels."""
    target = fnx.nn.one_hot(y, 10) * (1 - SMOOTHING) + SMOOTHING / 10
    return -jnp.mean(jnp.sum(target * fnx.nn.log_softmax(predict(params, x)), axis=-1))


def adam_step(state: Any, x: Any, y: Any, rate: Any) -> tuple[Any, Any]:
    """Return (loss, next state). The state: parameters, first and second moments, number of
    steps."""
    params, first, second, t = state
    value, gradient = fnx.value_and_grad(loss)(params, x, y)
    t = t + 1
    first = fnx.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, first, gradient)
    second = fnx.tree.map(lambda v, g: BETA2 * v + (1 - BETA2) * g * g, second, gradient)

    def update(p: Any, m: Any, v: Any) -> Any:
        m, v = m / (1 - BETA1 ** t), v / (1 - BETA2 ** t)
        return p - rate * (m / (jnp.sqrt(v) + EPSILON) + DECAY * p)

    return value, (fnx.tree.map(update, params, first, second), first, second, t)


# ---- training -------------------------------------------------------------------------------


@dataclass
class Run:
    """The results of one seed."""

    losses: list[float]
    predicted: np.ndarray  # of the test images
    chances: np.ndarray  # the probabilities of the correct labels
    accuracy: float
    first_call: float  # seconds; traces and compiles, unless an earlier seed did
    per_step: float  # seconds
    state: Any


def train(step: Any, data: Digits, seed: int, epochs: int, size: int, conv: bool = False) -> Run:
    key, weights = fnx.random.split(fnx.random.key(seed))
    params = init(weights, conv)
    zeros = fnx.tree.map(jnp.zeros_like, params)
    state = (params, zeros, fnx.tree.map(jnp.zeros_like, params), jnp.asarray(0.0))
    steps = epochs * -(-len(data.x_train) // size)
    losses: list[Any] = []
    times: list[float] = []
    with tqdm(total=steps, desc=f"seed {seed}", unit="step", leave=False) as bar:
        for epoch in fnx.random.split(key, epochs):
            for x, y in batches(epoch, data, size, SHIFT if conv else 0):
                rate = RATE * (1 + math.cos(math.pi * len(losses) / steps)) / 2
                start = time.perf_counter()
                value, state = step(state, x, y, rate)
                value.block_until_ready()
                times.append(time.perf_counter() - start)
                losses.append(value)
                bar.update()
            bar.set_postfix(loss=f"{float(value):.3f}", refresh=False)
    chances = np.asarray(fnx.nn.softmax(fnx.jit(predict)(state[0], data.x_test)))
    predicted = np.argmax(chances, axis=-1)
    return Run([float(value) for value in losses], predicted,
               chances[np.arange(len(chances)), data.y_test],
               float(np.mean(predicted == data.y_test)), times[0], statistics.median(times), state)


# ---- report ---------------------------------------------------------------------------------


def plot(path: str, run: Run, data: Digits) -> None:
    """Plot the loss curve, and the hardest digits: those that the network misread, with the wrong
    answer, and those that it was least sure of."""
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    hardest = np.argsort(run.chances)[:12]
    figure, axes = plt.subplot_mosaic(
        [["loss"] * 3 + [f"digit {4 * row + column}" for column in range(4)]
         for row in range(3)], figsize=(11, 4), layout="constrained")
    axes["loss"].plot(run.losses)
    axes["loss"].set(xlabel="step", ylabel="loss", title="training loss")
    for i, at in enumerate(hardest):
        panel, right = axes[f"digit {i}"], run.predicted[at] == data.y_test[at]
        panel.axis("off")
        panel.imshow(data.x_test[at].reshape(8, 8), cmap="gray_r")
        panel.set_title(f"{data.y_test[at]}: {run.chances[at]:.0%} sure" if right else
                        f"{data.y_test[at]} read as {run.predicted[at]}", fontsize=9,
                        color="black" if right else "C3")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def report(step: Any, runs: list[Run], data: Digits, size: int, out: str) -> None:
    middle = sorted(runs, key=lambda run: run.accuracy)[len(runs) // 2]
    stages = step.lower(middle.state, data.x_train[:size], data.y_train[:size], RATE)
    print(f"first call       {runs[0].first_call * 1e3:.0f} ms (trace, compile, run)")
    print(f"time per step    {statistics.median(r.per_step for r in runs) * 1e6:.0f} us")
    if hasattr(stages, "kernels"):  # fnx only: JAX's stages have no kernels
        moved = sum(kernel.bytes for kernel in stages.kernels)
        print(f"one step         {len(stages.kernels)} kernels, {moved / 1e6:.2f} MB moved")
    plot(out, middle, data)
    wrong = int(np.sum(middle.predicted != data.y_test))
    print(f"{out:16s} loss curve and misread digits ({wrong} of {len(data.y_test)})")
    for seed, run in enumerate(runs):
        print(f"seed {seed}           accuracy {run.accuracy:.4f}, last loss {run.losses[-1]:.3f}")
    print(f"test accuracy: {statistics.median(r.accuracy for r in runs):.3f}")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="train a network on handwritten digits")
    parser.add_argument("--conv", action="store_true", help="a convolutional network")
    parser.add_argument("--seeds", type=int, default=5, help="how many runs; their median counts")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--device", choices=("cpu", "interp", "cuda", "opencl", "webgpu"),
                        help="what computes")
    parser.add_argument("--out", default="digits.png", help="the picture to write")
    options = parser.parse_args(arguments)

    if options.device:
        fnx.config.device = options.device
    data = load()
    step = fnx.jit(adam_step, donate_argnums=0)
    runs = [train(step, data, seed, options.epochs, options.batch, options.conv)
            for seed in range(options.seeds)]
    report(step, runs, data, options.batch, options.out)


if __name__ == "__main__":
    main()
