"""Images and signals."""

import numpy as np

from programs.registry import Draws, program


@program(n=16)
def gaussian_blur_separable(ns, n=1024):
    jnp, d = ns.jnp, Draws(ns)
    taps = np.exp(-0.5 * (np.arange(-4, 5) / 1.5) ** 2)
    taps = (taps / taps.sum()).astype("float32")

    @ns.jax.jit
    def blur(x):
        p = jnp.pad(x, ((4, 4), (0, 0)), mode="reflect")
        x = sum(t * p[i:i + n] for i, t in enumerate(taps))
        p = jnp.pad(x, ((0, 0), (4, 4)), mode="reflect")
        return sum(t * p[:, i:i + n] for i, t in enumerate(taps))
    return blur, (d.uniform(n, n),)


@program(n=16)
def sobel_magnitude(ns, n=1024):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def edges(x):
        p = jnp.pad(x, 1, mode="edge")
        gx = p[:-2, 2:] + 2 * p[1:-1, 2:] + p[2:, 2:] - p[:-2, :-2] - 2 * p[1:-1, :-2] - p[2:, :-2]
        gy = p[2:, :-2] + 2 * p[2:, 1:-1] + p[2:, 2:] - p[:-2, :-2] - 2 * p[:-2, 1:-1] - p[:-2, 2:]
        size = jnp.sqrt(gx ** 2 + gy ** 2)
        return size / size.max()
    return edges, (d.uniform(n, n),)


@program(n=12)
def bilateral_filter(ns, n=256):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def smooth(x):
        total, weight = jnp.zeros_like(x), jnp.zeros_like(x)
        for i in range(-3, 4):
            for j in range(-3, 4):
                y = jnp.roll(x, (i, j), (0, 1))
                w = jnp.exp(-(i * i + j * j) / 8.0 - (x - y) ** 2 / 0.02)
                total, weight = total + w * y, weight + w
        return total / weight
    return smooth, (d.uniform(n, n),)


@program(batch=1, size=8)
def normalize_bytes_to_channels_first(ns, batch=32, size=224):
    jnp, d = ns.jnp, Draws(ns)
    mean, std = jnp.array([0.485, 0.456, 0.406]), jnp.array([0.229, 0.224, 0.225])
    f = ns.jax.jit(lambda x: ((x.astype("float32") / 255 - mean) / std).transpose(0, 3, 1, 2))
    return f, (d.integers(256, batch, size, size, 3, dtype="uint8"),)


@program(batch=2, size=8)
def augment_crop_flip_normalize(ns, batch=128, size=32):
    jax, jnp, lax, d = ns.jax, ns.jnp, ns.lax, Draws(ns)

    @jax.jit
    def augment(key, x):
        k1, k2 = jax.random.split(key)
        p = jnp.pad(x, ((0, 0), (4, 4), (4, 4), (0, 0)))
        at = jax.random.randint(k1, (batch, 2), 0, 9)
        x = jax.vmap(lambda im, o: lax.dynamic_slice(im, (o[0], o[1], 0), (size, size, 3)))(p, at)
        flip = jax.random.bernoulli(k2, 0.5, (batch, 1, 1, 1))
        x = jnp.where(flip, x[:, :, ::-1], x)
        return (x - x.mean((1, 2), keepdims=True)) / (x.std((1, 2), keepdims=True) + 1e-3)
    return augment, (ns.random.key(0), d.uniform(batch, size, size, 3))


@program(n=8, to=12)
def resize_bilinear_by_gather(ns, n=512, to=768):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def resize(x):
        at = jnp.clip((jnp.arange(to) + 0.5) * n / to - 0.5, 0, n - 1)
        low = jnp.minimum(at.astype(jnp.int32), n - 2)
        part = at - low
        rows = x[low] * (1 - part)[:, None, None] + x[low + 1] * part[:, None, None]
        return rows[:, low] * (1 - part)[:, None] + rows[:, low + 1] * part[:, None]
    return resize, (d.uniform(n, n, 3),)


@program(n=8)
def resize_of_jax_image(ns, n=256):
    jax, d = ns.jax, Draws(ns)
    return (jax.jit(lambda x: jax.image.resize(x, (4, n // 2 + 3, n // 2 + 3, 3), "bilinear")),
            (d.uniform(4, n, n, 3),))


@program(n=12)
def rotate_by_gather(ns, n=512):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def rotate(x, angle):
        c, s = jnp.cos(angle), jnp.sin(angle)
        i, j = jnp.meshgrid(jnp.arange(n) - n / 2, jnp.arange(n) - n / 2, indexing="ij")
        y, z = c * i - s * j + n / 2, s * i + c * j + n / 2
        y0, z0 = jnp.floor(y).astype(jnp.int32), jnp.floor(z).astype(jnp.int32)
        fy, fz = y - y0, z - z0

        def at(a, b):
            inside = (a >= 0) & (a < n) & (b >= 0) & (b < n)
            return jnp.where(inside, x[jnp.clip(a, 0, n - 1), jnp.clip(b, 0, n - 1)], 0)
        return (1 - fy) * ((1 - fz) * at(y0, z0) + fz * at(y0, z0 + 1)) \
            + fy * ((1 - fz) * at(y0 + 1, z0) + fz * at(y0 + 1, z0 + 1))
    return rotate, (d.uniform(n, n), jnp.float32(0.4))


@program(n=12)
def median_filter_3x3(ns, n=512):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def median(x):
        p = jnp.pad(x, 1, mode="edge")
        near = jnp.stack([p[i:i + n, j:j + n] for i in range(3) for j in range(3)], -1)
        return jnp.median(near, -1)
    return median, (d.uniform(n, n),)


@program(n=12)
def morphological_gradient(ns, n=1024):
    jnp, lax, d = ns.jnp, ns.lax, Draws(ns)

    @ns.jax.jit
    def gradient(x):
        grown = lax.reduce_window(x, -jnp.inf, lax.max, (5, 5), (1, 1), "SAME")
        shrunk = lax.reduce_window(x, jnp.inf, lax.min, (5, 5), (1, 1), "SAME")
        return grown - shrunk
    return gradient, (d.uniform(n, n),)


@program(n=12)
def label_regions(ns, n=128):
    jnp, lax, d = ns.jnp, ns.lax, Draws(ns)

    @ns.jax.jit
    def label(mask):
        start = jnp.where(mask, jnp.arange(1, n * n + 1).reshape(n, n), 0)

        def step(state):
            names, _ = state
            p = jnp.pad(names, 1)
            new = jnp.maximum(jnp.maximum(p[2:, 1:-1], p[:-2, 1:-1]),
                              jnp.maximum(p[1:-1, 2:], p[1:-1, :-2]))
            new = jnp.where(mask, jnp.maximum(names, new), 0)
            return new, jnp.any(new != names)
        return lax.while_loop(lambda s: s[1], step, (start, jnp.bool_(True)))[0]
    return label, (d.uniform(n, n) > 0.5,)


@program(n=12)
def histogram_equalization(ns, n=512):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def equalize(x):
        count = jnp.zeros(256).at[x.reshape(-1)].add(1.0)
        cdf = jnp.cumsum(count) / x.size
        return (cdf[x] * 255).astype(jnp.uint8)
    return equalize, (d.integers(200, n, n, dtype="uint8"),)


@program(n=16)
def oriented_gradients(ns, n=256):
    jax, jnp, d = ns.jax, ns.jnp, Draws(ns)

    @jax.jit
    def describe(x):
        gy, gx = jnp.gradient(x)
        size, angle = jnp.hypot(gx, gy), jnp.arctan2(gy, gx)
        place = ((angle + jnp.pi) / (2 * jnp.pi) * 9).astype(jnp.int32) % 9
        cells = (jax.nn.one_hot(place, 9) * size[..., None]).reshape(n // 8, 8, n // 8, 8, 9)
        found = cells.sum((1, 3))
        return found / (jnp.linalg.norm(found, axis=-1, keepdims=True) + 1e-6)
    return describe, (d.uniform(n, n),)


@program(n=64, taps=5)
def fir_filter(ns, n=200_000, taps=63):
    return (ns.jax.jit(lambda x, h: ns.jnp.convolve(x, h, mode="same")),
            (Draws(ns).normal(n), Draws(ns, 1).normal(taps)))


@program(n=16, channels=2)
def iir_biquad_by_scan(ns, n=5000, channels=64):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def run(x):
        def step(state, x):
            z1, z2 = state
            y = 0.2 * x + z1
            return (0.4 * x + 0.37 * y + z2, 0.2 * x - 0.2 * y), y
        zeros = jnp.zeros(channels)
        return ns.lax.scan(step, (zeros, zeros), x)[1]
    return run, (d.normal(n, channels),)


@program(n=64, lags=5)
def autocorrelation(ns, n=50_000, lags=50):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def run(x):
        x = x - x.mean()
        return jnp.stack([jnp.sum(x[k:] * x[:n - k]) for k in range(lags)]) / jnp.sum(x * x)
    return run, (d.normal(n),)


@program(log_n=4)
def fft_by_real_numbers(ns, log_n=14):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def transform(re, im):
        n = re.shape[0]
        re, im = re.reshape(n, 1), im.reshape(n, 1)
        while re.shape[0] > 1:
            half, width = re.shape[0] // 2, re.shape[1]
            angle = -jnp.pi * jnp.arange(width) / width
            c, s = jnp.cos(angle), jnp.sin(angle)
            er, ei, odd_r, odd_i = re[:half], im[:half], re[half:], im[half:]
            tr, ti = odd_r * c - odd_i * s, odd_r * s + odd_i * c
            re = jnp.concatenate([er + tr, er - tr], 1)
            im = jnp.concatenate([ei + ti, ei - ti], 1)
        return re[0], im[0]
    return transform, (d.normal(2 ** log_n), d.normal(2 ** log_n))


@program(n=256, frame=32)
def mel_spectrogram_by_products(ns, n=64_000, frame=512):
    jnp, d = ns.jnp, Draws(ns)
    k = np.arange(frame // 2 + 1)[:, None] * np.arange(frame) * 2 * np.pi / frame
    cos, sin = (jnp.asarray(f(k).T.astype("float32")) for f in (np.cos, np.sin))

    @ns.jax.jit
    def run(x, mel):
        starts = jnp.arange(0, n - frame + 1, frame // 4)
        frames = x[starts[:, None] + jnp.arange(frame)] * jnp.hanning(frame)
        power = (frames @ cos) ** 2 + (frames @ sin) ** 2
        return jnp.log(power @ mel + 1e-6)
    return run, (d.normal(n), d.uniform(frame // 2 + 1, 40))


@program(n=16)
def haar_wavelets(ns, n=512):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def run(x):
        kept = []
        for _ in range(3):
            low, high = (x[0::2] + x[1::2]) / 2, (x[0::2] - x[1::2]) / 2
            kept += [high[:, 0::2] + high[:, 1::2], high[:, 0::2] - high[:, 1::2],
                     low[:, 0::2] - low[:, 1::2]]
            x = (low[:, 0::2] + low[:, 1::2]) / 2
        return x, [jnp.sign(k) * jnp.maximum(jnp.abs(k) - 0.1, 0) for k in kept]
    return run, (d.normal(n, n),)


@program(n=12)
def optical_flow(ns, n=256, steps=20):
    jnp, d = ns.jnp, Draws(ns)

    @ns.jax.jit
    def flow(a, b):
        iy, ix = jnp.gradient(a)
        it = b - a

        def mean(f):
            return (jnp.roll(f, 1, 0) + jnp.roll(f, -1, 0) + jnp.roll(f, 1, 1)
                    + jnp.roll(f, -1, 1)) / 4

        def step(_, uv):
            u, v = mean(uv[0]), mean(uv[1])
            t = (ix * u + iy * v + it) / (1 + ix ** 2 + iy ** 2)
            return u - ix * t, v - iy * t
        return ns.lax.fori_loop(0, steps, step, (jnp.zeros_like(a), jnp.zeros_like(a)))
    return flow, (d.uniform(n, n), d.uniform(n, n))
