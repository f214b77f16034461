"""Write docs/aten_ops.md, the table of PyTorch's ops that fnx has rows for.

    python scripts/write_aten_ops.py

A test says when it is not current.
"""

from __future__ import annotations

from pathlib import Path

from fnx.torch import bags, elementwise, fourier, indexing, nn, randoms, reductions, shapes

PAGE = Path(__file__).resolve().parent.parent / "docs" / "aten_ops.md"
CHAPTERS = {"Elementwise": elementwise, "Reductions": reductions, "Shapes": shapes,
            "Indexing": indexing, "Bags of embeddings": bags, "Fourier transforms": fourier,
            "Networks": nn, "Random numbers": randoms}
HEAD = """# Ops of PyTorch

The rows of fnx's op table for [`torch.compile`, `fnx.torch.function` and
`fnx.torch.load`](guide/torch.md): names of ATen and prims, each with all of its overloads. PyTorch
decomposes other ops into these where it knows how. What remains, PyTorch computes itself in a
compiled module, with one warning that names it.

| chapter | rows | ops |
|---|---|---|
"""


def page() -> str:
    """Return the text of the page."""
    return HEAD + "".join(
        f"| {title} | {len(chapter.TABLE)} | "
        f"{', '.join(f'`{name}`' for name in sorted(chapter.TABLE))} |\n"
        for title, chapter in CHAPTERS.items())


if __name__ == "__main__":
    PAGE.write_text(page())
