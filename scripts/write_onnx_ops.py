"""Write docs/onnx_ops.md, the table of the operators of ONNX that fnx has rows for.

    python scripts/write_onnx_ops.py

A test says when it is not current.
"""

from __future__ import annotations

from pathlib import Path

from fnx.onnx.graphs import FIRST_OPSET
from fnx.onnx.registry import attributes_of, covered

PAGE = Path(__file__).resolve().parent.parent / "docs" / "onnx_ops.md"
HEAD = """# Operators of ONNX

The rows of fnx's op table for [`fnx.onnx.load`](guide/onnx.md). An operator that is not here is
computed by its function, if ONNX defines one, else the model is refused with its name. Rows are
for opset {first} and later ones.

| operator | rows from opset | attributes | inputs that must be known while tracing |
|---|---|---|---|
"""


def page() -> str:
    """Return the text of the page."""
    lines = []
    for name, rows in sorted(covered().items()):
        attributes = sorted({a for row in rows for a in attributes_of(row.rule)})
        static = sorted({i + 1 for row in rows for i in row.static})
        lines.append(f"| {name} | {', '.join(str(row.since) for row in rows)} | "
                     f"{', '.join(f'`{a}`' for a in attributes)} | "
                     f"{', '.join(map(str, static))} |\n")
    return HEAD.format(first=FIRST_OPSET) + "".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
