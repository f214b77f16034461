"""Write docs/settings.md, the table of settings and their environment variables.

    python scripts/write_settings.py

It has what ``print(fnx.config)`` shows; a test says when it is not current.
"""

from __future__ import annotations

from pathlib import Path

from fnx.core.support.config import FIELDS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"
HEAD = """# Settings and environment variables

A setting is an attribute of `fnx.config`, or a variable of the environment, which is read when fnx
is imported. `print(fnx.config)` shows each one, its value and where the value came from;
`python -m fnx` shows those that differ from the default.

    fnx.config.workers = 4           # in the program
    FNX_WORKERS=4 python train.py    # or when it is started

| setting | variable | default | takes | meaning |
|---|---|---|---|---|
"""


def page() -> str:
    """Return the text of the page."""
    rows = [f"| `{name}` | {f'`{field.variable}`' if field.variable else ''} | "
            f"`{field.default!r}` | {field.kind.description} | {field.doc} |\n"
            for name, field in FIELDS.items()]
    return HEAD + "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(page())
