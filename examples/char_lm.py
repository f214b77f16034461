"""Train a small transformer to write Python, on the source of Python's own standard library.

    python examples/char_lm.py                        # some minutes on two cores
    python examples/char_lm.py --save char_lm.safetensors --out char_lm.png

The baseline is a 5-gram model of the same training files: both models are scored by their surprise
at files that neither has seen. A run that is killed at any time resumes from its last checkpoint
when it is started again, and ends with the same bits as an uninterrupted one.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import sysconfig
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import fnx
import fnx.numpy as jnp
from fnx.saving import load, save

try:
    import matplotlib
    from tqdm import tqdm
except ModuleNotFoundError as error:
    sys.exit(f"{error}. Fix: pip install 'fnx[examples]'")

BETA1, BETA2, EPSILON = 0.9, 0.98, 1e-8  # of Adam
DECAY = 0.05  # of weights, decoupled
WARMUP = 0.05  # fraction of the steps in which the rate rises
ORDER = 5  # characters of an n-gram
CHECKED = 20_000  # characters of the validation text that are scored during training


# ---- data -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Text:
    """Characters as numbers below ``len(alphabet)``."""

    alphabet: str
    train: np.ndarray
    valid: np.ndarray

    def show(self, codes: Any) -> str:
        return "".join(self.alphabet[i] for i in codes)


def read(size: int) -> Text:
    """Read about ``size`` characters of the standard library; each tenth file is for validation."""
    parts: dict[bool, list[str]] = {True: [], False: []}
    for i, path in enumerate(sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))):
        source = path.read_text(encoding="utf-8", errors="replace")
        parts[i % 10 == 9].append("".join(c if c.isascii() else "?" for c in source))
    train, valid = ("".join(parts[held_out])[:n]
                    for held_out, n in ((False, size), (True, max(size // 20, 2000))))
    alphabet = "".join(sorted({*train, *valid}))
    code = np.zeros(128, np.uint8)
    code[[ord(c) for c in alphabet]] = range(len(alphabet))
    return Text(alphabet, *(code[np.frombuffer(part.encode(), np.uint8)]
                            for part in (train, valid)))


# ---- the baseline: an n-gram model ------------------------------------------------------------


def ngram_loss(text: Text, order: int) -> np.ndarray:
    """-log p of each character of the validation text, by Witten and Bell's interpolation.

        p_n = (count(context, c) + kinds(context) p_{n-1}) / (count(context) + kinds(context))
    """
    size = len(text.alphabet)
    p = np.full(len(text.valid), 1 / size)
    for n in range(1, order + 1):
        train, valid = (_grams(codes, n, size) for codes in (text.train, text.valid))
        grams, times = np.unique(train, return_counts=True)
        contexts, kinds = np.unique(grams // size, return_counts=True)
        seen = np.add.reduceat(times, np.searchsorted(grams // size, contexts))
        count = _looked_up(grams, times, valid)
        context, kind = (_looked_up(contexts, x, valid // size) for x in (seen, kinds))
        better = (count + kind * p[n - 1:]) / np.maximum(context + kind, 1)
        p[n - 1:] = np.where(context > 0, better, p[n - 1:])
    return -np.log(p)


def _grams(codes: np.ndarray, n: int, size: int) -> np.ndarray:
    """Encode each n characters as one number."""
    windows = np.lib.stride_tricks.sliding_window_view(codes.astype(np.int64), n)
    return windows @ size ** np.arange(n - 1, -1, -1)


def _looked_up(keys: np.ndarray, values: np.ndarray, x: np.ndarray) -> np.ndarray:
    at = np.minimum(np.searchsorted(keys, x), len(keys) - 1)
    return np.where(keys[at] == x, values[at], 0)


# ---- model ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Size:
    """Layers, width, heads, and the number of characters in the context."""

    layers: int = 4
    width: int = 128
    heads: int = 4
    length: int = 128


def init(key: Any, size: Size, alphabet: int) -> Any:
    """Initial weights; those that write into the residual stream are scaled down, as in GPT-2."""
    d = size.width

    def weight(key: Any, m: int, n: int, scale: float = 1.0) -> Any:
        return fnx.random.normal(key, (m, n)) * (scale / math.sqrt(m))

    def layer(key: Any) -> Any:
        a, b, c, e = fnx.random.split(key, 4)
        small = 1 / math.sqrt(2 * size.layers)
        return {"qkv": weight(a, d, 3 * d), "out": weight(b, d, d, small), "norm1": jnp.ones(d),
                "up": weight(c, d, 4 * d), "down": weight(e, 4 * d, d, small),
                "norm2": jnp.ones(d)}

    first, second, *keys = fnx.random.split(key, size.layers + 2)
    return {"letters": fnx.random.normal(first, (alphabet, d)) * 0.05,
            "places": fnx.random.normal(second, (size.length, d)) * 0.05,
            "layers": [layer(k) for k in keys], "norm": jnp.ones(d)}


def norm(x: Any, scale: Any) -> Any:
    return x * fnx.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * scale


def attention(p: Any, x: Any, heads: int) -> Any:
    """Causal self-attention: each position attends to itself and those before it."""
    *batch, t, d = x.shape
    q, k, v = (jnp.swapaxes(a.reshape(*batch, t, heads, d // heads), -2, -3)
               for a in jnp.split(x @ p["qkv"], 3, axis=-1))
    scores = q @ jnp.swapaxes(k, -1, -2) / math.sqrt(d // heads)
    scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -jnp.inf)
    seen = fnx.nn.softmax(scores, axis=-1) @ v
    return jnp.swapaxes(seen, -2, -3).reshape(x.shape) @ p["out"]


def logits(params: Any, codes: Any, heads: int) -> Any:
    """Logits of the next character: (..., length) -> (..., length, alphabet)."""
    x = params["letters"][codes] + params["places"][:codes.shape[-1]]
    for p in params["layers"]:
        x = x + attention(p, norm(x, p["norm1"]), heads)
        x = x + fnx.nn.gelu(norm(x, p["norm2"]) @ p["up"]) @ p["down"]
    return norm(x, params["norm"]) @ params["letters"].T


def surprise(params: Any, codes: Any, heads: int) -> Any:
    """-log p of each character after the first: (..., n + 1) -> (..., n)."""
    log_p = fnx.nn.log_softmax(logits(params, codes[..., :-1], heads))
    return -jnp.take_along_axis(log_p, codes[..., 1:, None], axis=-1)[..., 0]


# ---- training -------------------------------------------------------------------------------


def adam_step(state: Any, codes: Any, rate: Any, heads: int) -> tuple[Any, Any]:
    """Return (loss, next state)."""
    value, gradient = fnx.value_and_grad(
        lambda p: jnp.mean(surprise(p, codes, heads)))(state["params"])
    length = jnp.sqrt(sum(jnp.sum(g * g) for g in fnx.tree.leaves(gradient)))
    gradient = fnx.tree.map(lambda g: g / jnp.maximum(length, 1.0), gradient)
    t = state["step"] + 1
    first = fnx.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, state["first"], gradient)
    second = fnx.tree.map(lambda v, g: BETA2 * v + (1 - BETA2) * g * g, state["second"], gradient)

    def update(p: Any, m: Any, v: Any) -> Any:
        m, v = m / (1 - BETA1 ** t), v / (1 - BETA2 ** t)
        decay = DECAY * p if p.ndim > 1 else 0.0
        return p - rate * (m / (jnp.sqrt(v) + EPSILON) + decay)

    params = fnx.tree.map(update, state["params"], first, second)
    return value, {"params": params, "first": first, "second": second, "step": t}


def learning_rate(step: int, steps: int, most: float) -> float:
    """Linear warm-up, then half a cosine down to a tenth."""
    warmup = max(1, int(WARMUP * steps))
    if step < warmup:
        return most * (step + 1) / warmup
    return most * (0.55 + 0.45 * math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def batch(seed: int, step: int, codes: np.ndarray, count: int, length: int) -> np.ndarray:
    """Random stretches of the text, always the same for a given step."""
    starts = np.random.default_rng((seed, step)).integers(0, len(codes) - length - 1, count)
    return codes[starts[:, None] + np.arange(length + 1)].astype(np.int32)


def validate(score: Any, params: Any, codes: np.ndarray, length: int) -> np.ndarray:
    """-log p of each character from length // 2 on, each with at least that much context."""
    half = length // 2
    starts = np.arange(0, len(codes) - length, half)
    windows = codes[starts[:, None] + np.arange(length + 1)].astype(np.int32)
    parts = [np.asarray(score(params, w))[:, half:] for w in np.array_split(
        windows[:len(windows) // 16 * 16], max(1, len(windows) // 16))]
    return np.concatenate(parts).ravel()


def resumed(path: str | None, state: Any, losses: np.ndarray, validated: np.ndarray) -> Any:
    """Return the contents of the checkpoint, if there is one."""
    if path is None or not os.path.exists(path):
        return state, losses, validated
    whole = load(path, like={"state": state, "losses": losses, "validated": validated})
    print(f"goes on from step {int(whole['state']['step'])} of {path}")
    return whole["state"], whole["losses"], whole["validated"]


def train(text: Text, size: Size, options: argparse.Namespace) -> tuple[Any, Any, Any]:
    """Return (parameters, losses, (steps, 2) array: step and loss of each validation)."""
    params = init(fnx.random.key(options.seed), size, len(text.alphabet))
    zeros = partial(fnx.tree.map, jnp.zeros_like)
    state = fnx.device_get({"params": params, "first": zeros(params), "second": zeros(params),
                            "step": jnp.asarray(0.0, "float32")})
    losses = np.full(options.steps, np.nan, np.float32)
    validated = np.full((10, 2), np.nan, np.float32)
    state, losses, validated = resumed(options.save, state, losses, validated)
    step = fnx.jit(partial(adam_step, heads=size.heads), donate_argnums=0)
    score = fnx.jit(partial(surprise, heads=size.heads))
    done = int(state["step"])
    state = fnx.device_put(state)
    every, passed = max(1, options.steps // 10), time.perf_counter()
    with tqdm(total=options.steps, initial=done, unit="step", desc="training") as bar:
        for i in range(done, options.steps):
            codes = batch(options.seed, i, text.train, options.batch, size.length)
            losses[i], state = step(state, codes, learning_rate(i, options.steps, options.rate))
            bar.update()
            if (i + 1) % every == 0 and (i + 1) // every <= 10:
                found = validate(score, state["params"], text.valid[:CHECKED], size.length).mean()
                validated[(i + 1) // every - 1] = i + 1, found
                bar.set_postfix(valid=f"{found:.3f}", train=f"{losses[i]:.3f}")
            if options.save and ((i + 1) % options.every == 0 or i + 1 == options.steps):
                save(options.save, {"state": fnx.device_get(state), "losses": losses,
                                    "validated": validated})
    passed = time.perf_counter() - passed
    if options.steps > done:
        print(f"{(options.steps - done) * options.batch * size.length / passed:,.0f} characters "
              "a second")
    return state["params"], losses, validated


# ---- results ----------------------------------------------------------------------------------


def sample(params: Any, text: Text, size: Size, seed: int, count: int, heat: float = 0.7) -> str:
    """Draw characters one by one, starting from a newline; one program draws all of them."""
    def following(carry: Any, key: Any) -> tuple[Any, Any]:
        codes, known = carry
        scores = logits(params, codes, size.heads)[known - 1] / heat
        chosen = fnx.random.categorical(key, scores).astype("int32")
        full = known == size.length  # then the oldest one is dropped
        codes = jnp.where(full, jnp.roll(codes, -1), codes)
        known = jnp.where(full, known, known + 1)
        return (codes.at[known - 1].set(chosen), known), chosen

    start = jnp.zeros(size.length, "int32").at[0].set(text.alphabet.index("\n"))
    keys = fnx.random.split(fnx.random.key(seed), count)
    _, chosen = fnx.jit(lambda: fnx.lax.scan(following, (start, jnp.asarray(1)), keys))()
    return text.show(np.asarray(chosen))


def plot(path: str, text: Text, losses: Any, validated: Any, judge: float, each: Any, start: int
         ) -> None:
    """Plot the losses, and the model's surprise at each character of a piece of code."""
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 5), layout="constrained",
                                         width_ratios=(2, 3))
    left.plot(losses, color="0.8", lw=0.8, label="training")
    left.plot(*validated.T, "o-", color="C0", label="validation")
    left.axhline(judge, color="C3", ls="--", label=f"{ORDER}-gram model")
    left.set(xlabel="step", ylabel="nats a character", title="learning to read Python",
             ylim=(0.95 * np.nanmin(losses), min(4.0, np.nanmax(losses))))
    left.legend()
    right.axis("off")
    right.set(xlim=(0, 80), ylim=(25, 0), title="how surprised it is by a file it has not seen")
    row = column = 0
    shades = plt.get_cmap("YlOrRd")
    first = text.show(text.valid[start:]).find("\n") + 1  # the first whole line
    for code, nats in zip(text.valid[start + first:], each[first:]):
        c = text.alphabet[code]
        if c == "\n" or column == 80:
            row, column = row + 1, 0
        if row == 25:
            break
        if c != "\n":
            right.add_patch(plt.Rectangle((column, row), 1, 1, lw=0,
                                          color=shades(min(1.0, nats / 7))))
            right.text(column + 0.5, row + 0.78, c, family="monospace", fontsize=7, ha="center",
                       color="white" if nats > 5 else "black")
            column += 1
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=2500)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--characters", type=int, default=2_000_000, help="of training text")
    parser.add_argument("--save", help="a checkpoint to write and to go on from (.safetensors)")
    parser.add_argument("--every", type=int, default=100, help="steps between checkpoints")
    parser.add_argument("--out", default="char_lm.png", help="the picture to write")
    for name, value in vars(Size()).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args(arguments)

    size = Size(options.layers, options.width, options.heads, options.length)
    text = read(options.characters)
    half = size.length // 2
    by_ngram = ngram_loss(text, ORDER)
    params, losses, validated = train(text, size, options)
    each = validate(fnx.jit(partial(surprise, heads=size.heads)), params, text.valid, size.length)
    judge = by_ngram[half + 1:half + 1 + len(each)].mean()  # for the same characters
    print(sample(params, text, size, options.seed, 4 * size.length))
    plot(options.out, text, losses, validated, by_ngram[half + 1:CHECKED].mean(), each, half + 1)
    count = sum(x.size for x in fnx.tree.leaves(params))
    print(f"{count:,} weights, {len(text.train):,} characters for training, "
          f"{len(each):,} for validation; {options.out}")
    print(f"{ORDER}-gram model: {judge:.4f} nats a character; transformer: {each.mean():.4f}")


if __name__ == "__main__":
    main()
