"""Sphinx's settings; ``make docs`` gathers the pages and runs it (scripts/build_docs.py)."""

import re
from importlib.metadata import version as installed

from sphinx.application import Sphinx

project = "fnx"
author = copyright = "The fnx authors"
version = release = installed("fnx")

extensions = ["sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon",
              "myst_nb"]
html_theme = "furo"
html_title = f"fnx {version}"
html_copy_source = False

exclude_patterns = ["README.md"]  # it is in the first page

autosummary_generate = False  # a page for each module: reference pages come from build_docs.py
autodoc_typehints = "signature"
napoleon_numpy_docstring = False
maximum_signature_line_length = 88  # one parameter a line beyond that

nb_execution_mode = "off"  # `make notebooks` executes them; here their stored results are shown
myst_heading_anchors = 4


def escape(app: Sphinx, what: str, name: str, thing: object, options: object,
           lines: list[str]) -> None:
    """Docstrings are plain text with ``literals``: ``*`` and ``|`` mean themselves."""
    lines[:] = [line if line.lstrip().startswith((">>>", "...")) else
                "".join(part if part.startswith("``") else re.sub(r"(?<!\\)([*|])", r"\\\1", part)
                        for part in re.split("(``.*?``)", line)) for line in lines]


def setup(app: Sphinx) -> None:
    app.connect("autodoc-process-docstring", escape, priority=900)  # behind napoleon
