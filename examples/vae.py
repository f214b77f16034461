"""Learn to draw digits: a variational autoencoder (Kingma and Welling, 2014).

    python examples/vae.py --out vae.png

An encoder maps each image to a normal distribution in a plane, a decoder maps each point of the
plane to an image. Both learn together, by the evidence lower bound. The picture shows the decoder's
images on a grid in that plane, where digits turn into one another, and the locations of the test
images.
"""

from __future__ import annotations

import argparse
import math
import sys
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

SIZES = (64, 256, 128)  # of the encoder; the decoder has the reverse
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # of Adam


# ---- data -----------------------------------------------------------------------------------


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Training images, test images and their labels; pixels from 0 to 1."""
    images, labels = load_digits(return_X_y=True)
    train, test, _, test_labels = train_test_split((images / 16).astype("float32"), labels,
                                                   test_size=0.2, stratify=labels, random_state=0)
    return train, test, test_labels


# ---- model ----------------------------------------------------------------------------------


def init(key: Any, sizes: tuple[int, ...]) -> list[tuple[Any, Any]]:
    """(weight, bias) of each layer."""
    keys = fnx.random.split(key, len(sizes) - 1)
    return [(fnx.random.normal(k, (m, n)) * math.sqrt(1 / m), jnp.zeros(n))
            for k, m, n in zip(keys, sizes, sizes[1:])]


def layers(params: Any, x: Any) -> Any:
    for w, b in params[:-1]:
        x = jnp.tanh(x @ w + b)
    w, b = params[-1]
    return x @ w + b


def encode(params: Any, image: Any) -> tuple[Any, Any]:
    """Mean and log standard deviation of an image's distribution."""
    mean, log_scale = jnp.split(layers(params["encoder"], image), 2, axis=-1)
    return mean, log_scale


def decode(params: Any, point: Any) -> Any:
    """Logits of the pixels."""
    return layers(params["decoder"], point)


def bound(params: Any, key: Any, image: Any) -> Any:
    """The negative evidence lower bound of one image, from one sample of its distribution."""
    mean, log_scale = encode(params, image)
    point = mean + jnp.exp(log_scale) * fnx.random.normal(key, mean.shape)
    logits = decode(params, point)
    drawn = jnp.sum(fnx.nn.softplus(logits) - image * logits)  # cross entropy of each pixel
    spread = jnp.sum(mean ** 2 + jnp.exp(2 * log_scale) - 1 - 2 * log_scale) / 2
    return drawn + spread


def loss(params: Any, key: Any, images: Any) -> Any:
    keys = fnx.random.split(key, len(images))
    return jnp.mean(fnx.vmap(bound, in_axes=(None, 0, 0))(params, keys, images))


# ---- training -------------------------------------------------------------------------------


def adam_step(state: Any, key: Any, images: Any, rate: Any) -> tuple[Any, Any]:
    """Return (loss, next state)."""
    params, first, second, t = state
    value, gradient = fnx.value_and_grad(loss)(params, key, images)
    t = t + 1
    first = fnx.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, first, gradient)
    second = fnx.tree.map(lambda v, g: BETA2 * v + (1 - BETA2) * g * g, second, gradient)

    def update(p: Any, m: Any, v: Any) -> Any:
        return p - rate * m / (1 - BETA1 ** t) / (jnp.sqrt(v / (1 - BETA2 ** t)) + EPSILON)

    return value, (fnx.tree.map(update, params, first, second), first, second, t)


def epoch(state: Any, key: Any, images: Any, rate: Any, size: int) -> tuple[Any, Any]:
    """All images once, in a random order: one program, a scan over batches."""
    order, noise = fnx.random.split(key)
    count = len(images) // size
    chosen = fnx.random.permutation(order, len(images))[:count * size].reshape(count, size)

    def step(state: Any, this: Any) -> tuple[Any, Any]:
        key, places = this
        value, state = adam_step(state, key, images[places], rate)
        return state, value

    state, values = fnx.lax.scan(step, state, (fnx.random.split(noise, count), chosen))
    return jnp.mean(values), state


def train(images: np.ndarray, seed: int, epochs: int, size: int, rate: float) -> tuple[Any, Any]:
    """Return (parameters, loss of each epoch)."""
    key, encoder, decoder = fnx.random.split(fnx.random.key(seed), 3)
    params = {"encoder": init(encoder, (*SIZES, 4)), "decoder": init(decoder, (2, *SIZES[::-1]))}
    zeros = fnx.tree.map(jnp.zeros_like, params)
    state = (params, zeros, zeros, jnp.asarray(0.0))
    run = fnx.jit(epoch, static_argnums=4)
    data = jnp.asarray(images)
    losses = []
    with tqdm(fnx.random.split(key, epochs), unit="epoch") as bar:
        for i, k in enumerate(bar):
            now = rate * (1 + math.cos(math.pi * i / epochs)) / 2
            value, state = run(state, k, data, now, size)
            losses.append(float(value))
            bar.set_postfix(loss=f"{losses[-1]:.2f}", refresh=False)
    return state[0], losses


# ---- report ---------------------------------------------------------------------------------


def drawn(params: Any, count: int) -> np.ndarray:
    """Decode a grid of points spaced so that all cells are equally probable, as one picture."""
    steps = np.array([(i + 0.5) / count for i in range(count)])
    places = jnp.asarray(np.sqrt(2) * np.asarray(fnx.lax.erf_inv(jnp.asarray(
        2 * steps - 1, "float32"))), "float32")
    plane = jnp.stack(jnp.meshgrid(places, places[::-1]), axis=-1)
    images = np.asarray(fnx.nn.sigmoid(decode(params, plane))).reshape(count, count, 8, 8)
    apart = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return apart.transpose(0, 2, 1, 3).reshape(10 * count, 10 * count)


def plot(path: str, params: Any, losses: list[float], test: np.ndarray, labels: np.ndarray) -> None:
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(14, 4.6), layout="constrained")
    left.plot(losses)
    left.set(xlabel="epoch", ylabel="- evidence lower bound (nats)", title="training",
             ylim=(min(losses) - 0.3, np.quantile(losses, 0.98)))
    middle.imshow(drawn(params, 14), cmap="gray_r", interpolation="bilinear")
    middle.axis("off")
    middle.set_title("what it draws, point by point of the plane")
    mean, _ = encode(params, jnp.asarray(test))
    dots = right.scatter(*np.asarray(mean).T, c=labels, s=14, cmap="tab10", vmin=-0.5, vmax=9.5)
    figure.colorbar(dots, ax=right, ticks=range(10), label="digit")
    right.set(title="where test images are: it never saw a label", xlim=(-4, 4), ylim=(-4, 4))
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="vae.png", help="the picture to write")
    options = parser.parse_args(arguments)

    images, test, labels = digits()
    params, losses = train(images, options.seed, options.epochs, options.batch, options.rate)
    held_out = float(fnx.jit(loss)(params, fnx.random.key(options.seed), jnp.asarray(test)))
    plot(options.out, params, losses, test, labels)
    print(f"picture          {options.out}")
    print(f"training images  {losses[-1]:.3f} nats")
    print(f"test images      {held_out:.3f} nats")


if __name__ == "__main__":
    main()
