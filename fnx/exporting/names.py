"""Names and comments in exported text: sanitize them, so that no name can become code.

A kernel, function or file may have any name, chosen by the user or found in an untrusted file.
Every name in C, WGSL or JavaScript is made by ``identifier``, every text for human readers by
``sanitize_comment``. Kernels themselves are named by digests (core/ir/kernel_code.py).

>>> identifier("digits"), identifier("int"), identifier("*/ system(1); /*")
('digits', 'int_', 'function')
>>> sanitize_comment('*/ system("x"); /*')
'* / system("x"); / *'
"""

from __future__ import annotations

import functools
import hashlib
import re
from pathlib import Path

MAX_LENGTH = 63  # significant characters of a name in C
_MAX_COMMENT_LENGTH = 200
_DEFAULT_NAME = "function"
_RESERVED_PREFIXES = ("fnx_", "convert_", "as_", "_")  # prefixes reserved for generated names



@functools.cache
def reserved_words() -> frozenset[str]:
    """Return the keywords of C, C++, OpenCL, WGSL and JavaScript, and the names that C's library
    defines (scripts/record_c_names.py). None of them ends in "_"."""
    path = Path(__file__)
    return frozenset([word for file in ("words.txt", "c_names.txt")
                      for word in path.with_name(file).read_text().split()])


def identifier(text: str) -> str:
    """Return a name that is valid and unreserved in every language; "function" if the text is not
    an ASCII identifier."""
    if not (text.isascii() and text.isidentifier()):
        text = _DEFAULT_NAME
    if len(text) >= MAX_LENGTH:
        text = f"{text[:MAX_LENGTH - 10]}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    if text.startswith("_"):
        return f"f{text}_"
    is_reserved = text in reserved_words() or text.isupper() or \
        text.startswith(_RESERVED_PREFIXES) or text.endswith("_")
    return f"{text}_" if is_reserved else text


def sanitize_comment(text: str) -> str:
    """Return text for a C comment: one line of ASCII that cannot open or close a comment."""
    plain = "".join([c if " " <= c <= "~" and c != "\\" else "." for c in
                     text[:_MAX_COMMENT_LENGTH]])
    return re.sub(r"(?<=[*/])(?=[*/])|(?<=\?)(?=\?)", " ", plain)
