"""Ten models as users of PyTorch write them, with inputs that they take."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Dropout(0.0), nn.Linear(32, 16),
                         nn.GELU(), nn.Linear(16, 4))


class ResidualBlock(nn.Module):
    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outer), nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.shortcut = nn.Identity() if inner == outer and stride == 1 else nn.Sequential(
            nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        y += self.shortcut(x)
        return self.relu(y)


def resnet() -> nn.Module:
    stem = [nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1)]
    blocks = [ResidualBlock(8, 8, 1), ResidualBlock(8, 16, 2)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5))


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.position = nn.Parameter(torch.randn(1, 12, 16))
        layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, "gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 3)

    def forward(self, tokens: Tensor, padding: Tensor) -> Tensor:
        x = self.embedding(tokens) + self.position[:, :tokens.shape[1]]
        return self.head(self.layers(x, src_key_padding_mask=padding).mean(1))


class Attention(nn.Module):
    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm, self.norm2 = heads, nn.LayerNorm(size), nn.LayerNorm(size)
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.mlp = nn.Sequential(nn.Linear(size, 2 * size), nn.GELU("tanh"),
                                 nn.Linear(2 * size, size))

    def forward(self, x: Tensor, cache: Tensor | None, start: int) -> Tensor:
        b, t, size = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2)
                   for y in self.qkv(self.norm(x)).chunk(3, -1))
        if cache is not None:
            cache[0, :, :, start:start + t] = k
            cache[1, :, :, start:start + t] = v
            k, v = cache[:, :, :, :start + t]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, size))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """``caches`` [layer, key or value, batch, head, position, element] are written in place."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(40, 16), nn.Embedding(12, 16)
        self.layers = nn.ModuleList([Attention(16, 2), Attention(16, 2)])
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 40, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor, caches: Tensor | None = None, start: int = 0) -> Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(start, start + tokens.shape[1]))
        for i, layer in enumerate(self.layers):
            x = layer(x, None if caches is None else caches[i], start)
        return self.head(self.norm(x))


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.cell = nn.Embedding(30, 8), nn.LSTMCell(8, 12)
        self.head = nn.Linear(12, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        x, state = self.embedding(tokens), (torch.zeros(tokens.shape[0], 12, dtype=torch.float64),
                                            torch.zeros(tokens.shape[0], 12, dtype=torch.float64))
        outputs = []
        for i in range(tokens.shape[1]):
            state = self.cell(x[:, i], state)
            outputs.append(state[0])
        return self.head(torch.stack(outputs, 1))


class VAE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 8))
        self.decoder = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 20), nn.Sigmoid())

    def forward(self, x: Tensor, noise: Tensor) -> Tensor:
        mean, log_variance = self.encoder(x).chunk(2, -1)
        y = self.decoder(mean + noise * torch.exp(0.5 * log_variance))
        divergence = -0.5 * torch.mean(1 + log_variance - mean.pow(2) - log_variance.exp())
        return F.binary_cross_entropy(y, x) + divergence


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        def block(inner: int, outer: int) -> nn.Module:
            return nn.Sequential(nn.Conv2d(inner, outer, 3, padding=1), nn.GroupNorm(2, outer),
                                 nn.SiLU())
        self.down1, self.down2, self.middle = block(3, 4), block(4, 8), block(8, 16)
        self.up, self.up2, self.up1 = nn.ConvTranspose2d(16, 8, 2, 2), block(16, 8), block(12, 4)
        self.out = nn.Conv2d(4, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        y = self.up2(torch.cat([self.up(self.middle(F.avg_pool2d(b, 2))), b], 1))
        y = F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False)
        return self.out(self.up1(torch.cat([y, a], 1)))


class DLRM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.ModuleList([nn.EmbeddingBag(30, 8, mode=m) for m in ("sum", "mean", "max")])
        self.bottom = nn.Sequential(nn.Linear(5, 8), nn.ReLU())
        self.top = nn.Linear(14, 1)

    def forward(self, dense: Tensor, index: Tensor, offsets: Tensor) -> Tensor:
        x = self.bottom(dense)
        z = torch.stack([x, *[bag(i, offsets) for bag, i in zip(self.bags, index)]], 1)
        rows, columns = torch.tril_indices(4, 4, -1)
        products = torch.bmm(z, z.transpose(1, 2))[:, rows, columns]
        return torch.sigmoid(self.top(torch.cat([x, products], 1)))


class GNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers, self.head = nn.ModuleList([nn.Linear(6, 8), nn.Linear(8, 8)]), nn.Linear(8, 3)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        ones = torch.ones(target.shape[0], dtype=x.dtype)
        degree = torch.zeros(x.shape[0], dtype=x.dtype).index_add(0, target, ones).clamp(min=1)
        for layer in self.layers:
            h = layer(x)
            x = F.relu(torch.zeros_like(h).index_add(0, target, h[source]) / degree[:, None] + h)
        return self.head(x)


class Diffusion(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(2, 8), nn.GroupNorm(2, 8)
        self.conv1, self.conv2 = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.time, self.attention = nn.Linear(16, 16), nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor, step: Tensor) -> Tensor:
        frequency = torch.exp(-math.log(10000) * torch.arange(8, dtype=x.dtype) / 8)
        angle = step[:, None] * frequency
        embedded = self.time(F.silu(torch.cat([angle.cos(), angle.sin()], -1)))
        scale, shift = embedded[:, :, None, None].chunk(2, 1)
        h = self.norm2(self.conv1(F.silu(self.norm1(x)))) * (1 + scale) + shift
        x = x + self.conv2(F.silu(h))
        q = x.flatten(2).transpose(1, 2)
        return x + self.attention(q, q, q, need_weights=False)[0].transpose(1, 2).reshape(x.shape)


def _padding() -> Tensor:
    padding = torch.zeros(3, 10, dtype=torch.bool)
    padding[:, 8:] = True
    return padding


R, INTEGERS = torch.randn, torch.randint
MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Any, ...]]]] = {
    "mlp": (mlp, lambda: (R(6, 20),)),
    "resnet": (resnet, lambda: (R(4, 3, 32, 32),)),
    "encoder": (Encoder, lambda: (INTEGERS(50, (3, 10)), _padding())),
    "gpt": (GPT, lambda: (INTEGERS(40, (2, 12)),)),
    "lstm": (Tagger, lambda: (INTEGERS(30, (3, 5)),)),
    "vae": (VAE, lambda: (torch.rand(4, 20), R(4, 4))),
    "unet": (UNet, lambda: (R(2, 3, 16, 16),)),
    "dlrm": (DLRM, lambda: (R(5, 5), INTEGERS(30, (3, 12)), torch.tensor([0, 2, 2, 7, 9]))),
    "gnn": (GNN, lambda: (R(9, 6), INTEGERS(9, (2, 30)))),
    "diffusion": (Diffusion, lambda: (R(2, 8, 6, 6), INTEGERS(1000, (2,)))),
}
