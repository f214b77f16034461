"""Names of functions and kernels never become code where they are exported."""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import fnx
import fnx.kernel as k
from fnx.exporting import names
from fnx.exporting.names import MAX_LENGTH, identifier, sanitize_comment
from tests.exporting.test_c_file import COMPILER, called, compiled

HOSTILE = ['*/ system("x"); /*', "*/ int evil = 1; /*", "a\n#include <evil>\n", "??/\n#error evil",
           "\\\n#error evil", "`);evil();(`", "${evil()}", "</script><b>evil", "a\0evil", "\ud800",
           "//\u2028evil", '"; !evil = !{}', "\u202eevil", "/" * 5000 + "evil", "*/*/evil/*/*",
           "evil\r@llvm.evil", "%s%n"]
WORDS = ["int", "free", "main", "uchar", "double", "class", "printf", "memcpy", "sin", "as_float",
         "fnx_max", "w0", "NAN", "I", "_Bool", "__attribute__", "f" * 400, "f" * 62, "x0", "work",
         "a", "errno", "read", "int_", "éa", "λ", "fn", "let", "var", "new"]


@given(st.text() | st.sampled_from([*HOSTILE, *WORDS]))
@example("*/")
def test_a_name_is_an_identifier_and_nobody_elses(text: str) -> None:
    name = identifier(text)
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) and len(name) <= MAX_LENGTH + 1
    assert name not in names.reserved_words()
    assert not any(w.endswith("_") for w in names.reserved_words())


@given(st.lists(st.sampled_from(WORDS) | st.from_regex(r"[a-z_]{1,6}", fullmatch=True),
                unique=True, max_size=8))
def test_names_that_differ_stay_apart(texts: list[str]) -> None:
    found = [identifier(t) for t in texts if t.isascii()]
    assert len(set(found)) == len(found)


@given(st.text() | st.text("*/\\?\n \"#'") | st.sampled_from(HOSTILE))
def test_a_comment_stays_one(text: str) -> None:
    shown = sanitize_comment(text)
    assert re.fullmatch(r"[ -~]*", shown) and len(shown) <= 400
    inside = f"/* {shown} */"
    assert inside.index("*/", 2) == len(inside) - 2 and inside.find("/*", 1) == -1
    assert "??" not in shown and "\\" not in shown


def doubling(name: str) -> Any:
    @fnx.call(out=lambda x: x, name=name)
    def kernel(x: Any, o: Any) -> None:
        i = k.range(x.shape[0], name)
        o[i] = 2 * x[i]

    return kernel


X = np.arange(16, dtype=np.float32)


def exported(name: str, to: str, path: Path, from_file: bool) -> dict[str, bytes]:
    f = doubling(name)
    if from_file:
        (file,) = fnx.export(f, X, to="fnx", name=name).save(path)
        f = fnx.load_exported(file)
    return fnx.export(lambda x: f(x) + 1, X, to=to, name=name).files


@pytest.mark.cases(25)
@pytest.mark.skipif(COMPILER is None, reason="no C compiler is here")
@pytest.mark.parametrize(("name", "from_file"), [
    *[(name, False) for name in HOSTILE + WORDS], *[(name, True) for name in HOSTILE[:4]]])
def test_c_compiles_and_does_what_it_did(name: str, from_file: bool, tmp_path: Path) -> None:
    files = exported(name, "c", tmp_path, from_file)
    title = identifier(name)
    assert set(files) == {f"{title}.c", f"{title}.h"}
    function, work = compiled(files, tmp_path, title)
    found = np.zeros(16, np.float32)
    called(function, work, [X], [found])
    np.testing.assert_array_equal(found, 2 * X + 1)
    assert not hasattr(ctypes.CDLL(str(tmp_path / f"{title}.so")), "evil")


@pytest.mark.skipif(COMPILER is None, reason="no C compiler is here")
def test_two_files_of_names_that_differ_by_case(tmp_path: Path) -> None:
    for name in ("net", "Net", "nET"):
        files = fnx.export(lambda x: x + 1, X, to="c", name=name).files
        for path, data in files.items():
            (tmp_path / path).write_bytes(data)
    (tmp_path / "all.c").write_text('#include "net.h"\n#include "Net.h"\n#include "nET.h"\n'
                                    "void *all[] = {net, Net, nET};\n")
    subprocess.run([str(COMPILER), "-std=c11", "-c", "-o", tmp_path / "all.o",
                    tmp_path / "all.c"], check=True)


@pytest.mark.parametrize("name", HOSTILE)
def test_pages_have_names_as_data_only(name: str, tmp_path: Path) -> None:
    for path, data in exported(name, "webgpu", tmp_path, False).items():
        assert re.fullmatch(r"[A-Za-z]\w*\.\w+", path, re.ASCII)
        if path.endswith(".json"):
            assert json.loads(data)["name"] == identifier(name)
        else:
            assert b"evil" not in data and b"system" not in data


@pytest.mark.parametrize("name", HOSTILE)
def test_texts_of_kernels_have_no_names_in_them(name: str) -> None:
    """Neither LLVM IR nor machine code nor other devices' text contains them: symbols are
    digests."""
    f = doubling(name)
    made = fnx.jit(lambda x: f(x) + 1).lower(X)
    for kernel in made.kernels:
        texts = made.kernel_texts(kernel.node)
        for level in ("llvm", "assembly"):
            assert "evil" not in texts[level]() and "system" not in texts[level]()
