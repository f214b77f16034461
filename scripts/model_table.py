"""The models of scripts/models.py: their own architectures, random weights, and sizes for a CPU.

Images have 96 pixels (a multiple of 32, which all of them take), texts 32 tokens, and transformers
4 layers of 256: the ops of the models are those of the large ones, and a run of all takes an hour
instead of a day. What is drawn or depends on data (dropout, stochastic depth, the selection of
boxes) is left out, so that two runs can be compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torchvision
import transformers
from torch import Tensor, nn

PIXELS, TOKENS, WORDS, WIDTH, LAYERS, HEADS = 96, 32, 1000, 256, 4, 4


class Model(NamedTuple):
    """A module, its arguments for a batch, and how it is called: f(module, *arguments)."""

    module: Callable[[], nn.Module]
    inputs: Callable[[int], tuple[Tensor, ...]]
    call: Callable[..., Any] = lambda module, *args: module(*args)


class Plain(nn.Module):
    """A model that takes tensors and returns a tuple of tensors."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.inner, self.call = model.module(), model.call
        for part in self.inner.modules():
            if isinstance(part, nn.Dropout | torchvision.ops.StochasticDepth):
                part.p = 0.0

    def forward(self, *args: Tensor) -> tuple[Tensor, ...]:
        y = self.call(self.inner, *args)
        return (y,) if isinstance(y, Tensor) else tuple(y)


def image(batch: int) -> tuple[Tensor, ...]:
    return (torch.randn(batch, 3, PIXELS, PIXELS),)


def text(batch: int) -> tuple[Tensor, ...]:
    return (torch.randint(WORDS, (batch, TOKENS)),)


def two_texts(batch: int) -> tuple[Tensor, ...]:
    return torch.randint(WORDS, (batch, TOKENS)), torch.randint(WORDS, (batch, TOKENS // 2))


def vision(name: str, **options: Any) -> Model:
    return Model(lambda: getattr(torchvision.models, name)(weights=None, **options), image)


def _segmentation(module: nn.Module, x: Tensor) -> Tensor:
    return module(x)["out"]


def _boxes(module: nn.Module, x: Tensor) -> tuple[Tensor, ...]:
    """Return the scores and boxes of all anchors; their selection depends on data."""
    found = module.head(list(module.backbone(x).values()))
    return found["cls_logits"], found["bbox_regression"]


def language(kind: str, config: str, inputs: Callable[[int], tuple[Tensor, ...]] = text,
             **options: Any) -> Model:
    def make() -> nn.Module:
        made = getattr(transformers, config)(**{
            "vocab_size": WORDS, "hidden_size": WIDTH, "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS, "intermediate_size": 4 * WIDTH,
            "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, **options})
        return getattr(transformers, kind)(made)
    return Model(make, inputs, lambda module, ids: module(input_ids=ids, return_dict=False)[0])


def _without_cache(module: nn.Module, ids: Tensor) -> Tensor:
    return module(input_ids=ids, use_cache=False, return_dict=False)[0]


def _t5() -> nn.Module:
    return transformers.T5ForConditionalGeneration(transformers.T5Config(
        vocab_size=WORDS, d_model=WIDTH, d_kv=WIDTH // HEADS, d_ff=4 * WIDTH, num_layers=LAYERS,
        num_heads=HEADS, dropout_rate=0.0))


def _whisper() -> nn.Module:
    return transformers.WhisperModel(transformers.WhisperConfig(
        vocab_size=WORDS, d_model=WIDTH, encoder_layers=LAYERS, decoder_layers=LAYERS,
        encoder_attention_heads=HEADS, decoder_attention_heads=HEADS, encoder_ffn_dim=4 * WIDTH,
        decoder_ffn_dim=4 * WIDTH, max_source_positions=100, num_mel_bins=80, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, dropout=0.0))


def _clip() -> nn.Module:
    common = {"hidden_size": WIDTH, "intermediate_size": 4 * WIDTH, "num_hidden_layers": LAYERS,
              "num_attention_heads": HEADS}
    return transformers.CLIPModel(transformers.CLIPConfig(
        text_config={**common, "vocab_size": WORDS, "max_position_embeddings": TOKENS,
                     "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0},
        vision_config={**common, "image_size": PIXELS, "patch_size": 16}, projection_dim=128))


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * WIDTH, 17)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.lstm(self.embedding(ids))[0])


class GNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, WIDTH), nn.Linear(WIDTH, WIDTH)])
        self.head = nn.Linear(WIDTH, 7)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges[0], edges[1]
        degree = torch.zeros_like(x[:, 0]).index_add(0, target, torch.ones_like(x[:, 0])[source])
        for layer in self.layers:
            h = layer(x)
            sums = torch.zeros_like(h).index_add(0, target, h[source])
            x = torch.relu(sums / degree.clamp(min=1)[:, None] + h)
        return self.head(x)


class VAE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(784, 400), nn.ReLU(), nn.Linear(400, 40))
        self.decoder = nn.Sequential(nn.Linear(20, 400), nn.ReLU(), nn.Linear(400, 784),
                                     nn.Sigmoid())

    def forward(self, x: Tensor, noise: Tensor) -> tuple[Tensor, ...]:
        mean, log_variance = self.encoder(x).chunk(2, -1)
        return self.decoder(mean + noise * torch.exp(0.5 * log_variance)), mean, log_variance


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        def block(inner: int, outer: int) -> nn.Module:
            return nn.Sequential(nn.Conv2d(inner, outer, 3, padding=1), nn.GroupNorm(4, outer),
                                 nn.SiLU(), nn.Conv2d(outer, outer, 3, padding=1), nn.SiLU())
        self.down, self.down2, self.middle = block(3, 16), block(16, 32), block(32, 64)
        self.up2, self.up1 = nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)
        self.block2, self.block1, self.out = block(64, 32), block(32, 16), nn.Conv2d(16, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.down(x)
        b = self.down2(nn.functional.max_pool2d(a, 2))
        y = self.middle(nn.functional.max_pool2d(b, 2))
        y = self.block2(torch.cat([self.up2(y), b], 1))
        return self.out(self.block1(torch.cat([self.up1(y), a], 1)))


class DLRM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(WORDS, 32) for _ in range(8)])
        self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(32 + 36, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, dense: Tensor, index: Tensor) -> Tensor:
        x = self.bottom(dense)
        z = torch.stack([x, *[t(index[:, i]) for i, t in enumerate(self.tables)]], 1)
        rows, columns = torch.tril_indices(9, 9, -1)
        return self.top(torch.cat([x, (z @ z.transpose(1, 2))[:, rows, columns]], 1))


OPT = {"ffn_dim": 4 * WIDTH, "word_embed_proj_dim": WIDTH, "max_position_embeddings": TOKENS}
MODELS: dict[str, Model] = {
    "resnet18": vision("resnet18"), "resnet50": vision("resnet50"), "vgg11": vision("vgg11_bn"),
    "mobilenet_v2": vision("mobilenet_v2"), "mobilenet_v3": vision("mobilenet_v3_small"),
    "efficientnet_b0": vision("efficientnet_b0"), "convnext_tiny": vision("convnext_tiny"),
    "vit": Model(lambda: torchvision.models.VisionTransformer(
        PIXELS, 16, LAYERS, HEADS, WIDTH, 4 * WIDTH), image),
    "swin_t": vision("swin_t"), "densenet121": vision("densenet121"),
    "shufflenet_v2": vision("shufflenet_v2_x1_0"), "regnet_y": vision("regnet_y_400mf"),
    "squeezenet": vision("squeezenet1_1"),
    "deeplab_v3": Model(lambda: torchvision.models.segmentation.deeplabv3_mobilenet_v3_large(
        weights=None, weights_backbone=None), image, _segmentation),
    "ssdlite": Model(lambda: torchvision.models.detection.ssdlite320_mobilenet_v3_large(
        weights=None, weights_backbone=None), image, _boxes),
    "bert": language("BertForMaskedLM", "BertConfig"),
    "distilbert": language("DistilBertForMaskedLM", "DistilBertConfig", dim=WIDTH, n_heads=HEADS,
                           n_layers=LAYERS, hidden_dim=4 * WIDTH, dropout=0.0,
                           attention_dropout=0.0),
    "roberta": language("RobertaForMaskedLM", "RobertaConfig"),
    "electra": language("ElectraForPreTraining", "ElectraConfig"),
    "gpt2": language("GPT2LMHeadModel", "GPT2Config", n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS,
                     n_positions=TOKENS, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
                     )._replace(call=_without_cache),
    "llama": language("LlamaForCausalLM", "LlamaConfig", num_key_value_heads=2
                      )._replace(call=_without_cache),
    "opt": language("OPTForCausalLM", "OPTConfig", dropout=0.0, **OPT)._replace(
        call=_without_cache),
    "t5": Model(_t5, two_texts, lambda module, a, b: module(
        input_ids=a, decoder_input_ids=b, use_cache=False, return_dict=False)[0]),
    "whisper": Model(_whisper, lambda b: (torch.randn(b, 80, 200),
                                          torch.randint(3, WORDS, (b, TOKENS))),
                     lambda module, a, b: module(input_features=a, decoder_input_ids=b,
                                                 use_cache=False, return_dict=False)[0]),
    "clip": Model(_clip, lambda b: (torch.randint(3, WORDS, (b, TOKENS)), *image(b)),
                  lambda module, a, b: module(input_ids=a, pixel_values=b,
                                              return_dict=False)[:2]),
    "lstm": Model(Tagger, text),
    "gnn": Model(GNN, lambda b: (torch.randn(200 * b, 64), torch.randint(200 * b, (2, 1000 * b)))),
    "vae": Model(VAE, lambda b: (torch.rand(b, 784), torch.randn(b, 20))),
    "unet": Model(UNet, image),
    "dlrm": Model(DLRM, lambda b: (torch.randn(b, 13), torch.randint(WORDS, (b, 8)))),
}
