"""Names and comments in exported text: sanitize them, so that no name can become code.

A kernel, function or file may have any name, chosen by the user or found in an untrusted file.
Every name in C, WGSL or JavaScript is made by ``identifier``, every text for human readers by
``comment``. Kernels themselves are named by digests (core/program.py).

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

LONGEST = 63  # significant characters of a name in C
_LONGEST_COMMENT = 200
_OTHERWISE = "function"
_OURS = ("fnx_", "convert_", "as_", "_")  # prefixes reserved for generated names



@functools.cache
def taken() -> frozenset[str]:
    """Return the keywords of C, C++, OpenCL, WGSL and JavaScript, and the names that C's library
    defines (scripts/record_c_names.py). None of them ends in "_"."""
    here = Path(__file__)
    return frozenset([word for file in ("words.txt", "c_names.txt")
                      for word in here.with_name(file).read_text().split()])


def identifier(text: str) -> str:
    """Return a name that is valid and unreserved in every language; "function" if the text is not
    an ASCII identifier."""
    if not (text.isascii() and text.isidentifier()):
        text = _OTHERWISE
    if len(text) >= LONGEST:
        text = f"{text[:LONGEST - 10]}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    if text.startswith("_"):
        return f"f{text}_"
    is_taken = text in taken() or text.isupper() or text.startswith(_OURS) or text.endswith("_")
    return f"{text}_" if is_taken else text


def comment(text: str) -> str:
    """Return text for a C comment: one line of ASCII that cannot open or close a comment."""
    plain = "".join([c if " " <= c <= "~" and c != "\\" else "." for c in
                     text[:_LONGEST_COMMENT]])
    return re.sub(r"(?<=[*/])(?=[*/])|(?<=\?)(?=\?)", " ", plain)
