"""Names and words in text that is exported: nothing that somebody called something is code there.

A kernel, a function or a file may be named anything, by the user or in a file of a stranger. All
that goes into C, WGSL or JavaScript as a name is made by ``identifier``, all that stands beside
code for readers by ``comment``. Kernels themselves are named by digests (core/program.py).

>>> identifier("digits"), identifier("int"), identifier("*/ system(1); /*")
('digits', 'int_', 'function')
>>> comment('*/ system("x"); /*')
'* / system("x"); / *'
"""

from __future__ import annotations

import functools
import hashlib
import re
from pathlib import Path

LONGEST = 63  # characters that C tells names apart by
_LONGEST_COMMENT = 200
_OTHERWISE = "function"
_OURS = ("fnx_", "convert_", "as_", "_")  # what names in an exported file begin with



@functools.cache
def taken() -> frozenset[str]:
    """The words of C, C++, OpenCL, WGSL and JavaScript, and what C's library defines
    (scripts/record_c_names.py). None of them ends in "_"."""
    here = Path(__file__)
    return frozenset([word for file in ("words.txt", "c_names.txt")
                      for word in here.with_name(file).read_text().split()])


def identifier(text: str) -> str:
    """A name that every language takes, and none of them has already; of what is no name of ASCII,
    that of any function."""
    if not (text.isascii() and text.isidentifier()):
        text = _OTHERWISE
    if len(text) >= LONGEST:
        text = f"{text[:LONGEST - 10]}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    if text.startswith("_"):
        return f"f{text}_"
    is_taken = text in taken() or text.isupper() or text.startswith(_OURS) or text.endswith("_")
    return f"{text}_" if is_taken else text


def comment(text: str) -> str:
    """Words for a comment of C: one line of ASCII without its beginning or end in it."""
    plain = "".join([c if " " <= c <= "~" and c != "\\" else "." for c in
                     text[:_LONGEST_COMMENT]])
    return re.sub(r"(?<=[*/])(?=[*/])|(?<=\?)(?=\?)", " ", plain)
