"""Workloads as a user of PyTorch writes them, eager, with PyTorch's own layers if it has them.

``TORCH`` maps the name of a workload to a builder: it takes the module torch and the workload's
arguments as tensors, and returns a function without arguments. Results are in the order of the
leaves of the workload's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Run = Callable[[], Any]
Builder = Callable[..., Run]


def _steps(torch: Any, params: list[Any], loss: Callable[[], Any], rate: float = 0.1) -> Run:
    """Return the loss, and every parameter after a step of gradient descent, as new tensors."""
    for p in params:
        p.requires_grad_()

    def run() -> Any:
        with torch.enable_grad():
            value = loss()
            gradients = torch.autograd.grad(value, params)
        return value.detach(), [p - rate * g for p, g in zip(params, gradients, strict=True)]
    return run


def _gradient(torch: Any, f: Callable[[Any], Any], x: Any) -> Run:
    x.requires_grad_()

    def run() -> Any:
        with torch.enable_grad():
            return torch.autograd.grad(f(x), x)[0]
    return run


def elementwise(torch: Any, x: Any) -> Run:
    return lambda: torch.tanh(x) * 2 + torch.sin(x) * torch.exp(-x * x)


def layernorm_grad(torch: Any, x: Any) -> Run:
    norm = torch.nn.functional.layer_norm
    return _gradient(torch, lambda x: torch.sum(torch.tanh(norm(x, x.shape[-1:]))), x)


def nbody_grad(torch: Any, p: Any) -> Run:
    def energy(p: Any) -> Any:
        d = p[:, None] - p[None]
        return -0.5 * torch.sum(torch.rsqrt(torch.sum(d * d, -1) + 1e-3))
    return _gradient(torch, energy, p)


def mlp_step(torch: Any, params: Any, x: Any, y: Any) -> Run:
    functional, y = torch.nn.functional, y.long()

    def loss() -> Any:
        h = x
        for w, b in params[:-1]:
            h = functional.relu(torch.addmm(b, h, w))
        w, b = params[-1]
        return functional.cross_entropy(torch.addmm(b, h, w), y)
    return _steps(torch, [p for layer in params for p in layer], loss)


def cnn_step(torch: Any, params: Any, x: Any, y: Any) -> Run:
    functional, y = torch.nn.functional, y.long()

    def layer(x: Any, filters: Any) -> Any:
        return functional.max_pool2d(functional.relu(functional.conv2d(x, filters, padding=1)), 2)

    def loss() -> Any:
        h = layer(layer(x, params["c1"]), params["c2"])
        return functional.cross_entropy(h.flatten(1) @ params["w"] + params["b"], y)
    return _steps(torch, [params[name] for name in sorted(params)], loss)


def gpt_step(torch: Any, params: Any, x: Any, y: Any, heads: int = 8) -> Run:
    functional, x, y = torch.nn.functional, x.long(), y.long()
    (batch, length), width = x.shape, params["pos"].shape[1]

    def attention(h: Any, p: Any) -> Any:
        q, k, v = (a.view(batch, length, heads, -1).transpose(1, 2)
                   for a in (h @ p["qkv"]).chunk(3, -1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return mixed.transpose(1, 2).reshape(batch, length, width) @ p["o"]

    def norm(h: Any, gain: Any) -> Any:
        return functional.layer_norm(h, (width,), gain)

    def loss() -> Any:
        h = params["emb"][x] + params["pos"]
        for p in params["layers"]:
            h = h + attention(norm(h, p["g1"]), p)
            up = functional.gelu(norm(h, p["g2"]) @ p["up"], approximate="tanh")
            h = h + up @ p["dn"]
        return functional.cross_entropy((h @ params["out"]).flatten(0, 1), y.flatten())

    inner = [p[name] for p in params["layers"] for name in sorted(p)]
    return _steps(torch, [params["emb"], *inner, params["out"], params["pos"]], loss)


def attention(torch: Any, q: Any, k: Any, v: Any, causal: bool) -> Run:
    f, given = torch.nn.functional.scaled_dot_product_attention, [x[None] for x in (q, k, v)]
    return lambda: f(*given, is_causal=causal)[0]  # with four axes it is one kernel


def attention_grad(torch: Any, q: Any, k: Any, v: Any, causal: bool) -> Run:
    f, given = torch.nn.functional.scaled_dot_product_attention, [q, k, v]
    for x in given:
        x.requires_grad_()

    def run() -> Any:
        with torch.enable_grad():
            out = f(*[x[None] for x in given], is_causal=causal)
            return torch.autograd.grad(torch.sum(torch.sin(out)), given)
    return run


TORCH: dict[str, Builder] = {
    "saxpy16M": lambda torch, x: lambda: x * 2 + 1,
    "elementwise16M": elementwise,
    "sum16M": lambda torch, x: lambda: torch.sum(x),
    "softmax4096": lambda torch, x: lambda: torch.softmax(x, -1),
    "layernorm_grad": layernorm_grad,
    "nbody_grad": nbody_grad,
    "mlp_step": mlp_step,
    "cnn_step": cnn_step,
    "gpt_step": gpt_step,
}
