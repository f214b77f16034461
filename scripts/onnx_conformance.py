"""Run the node tests of the package ``onnx`` on fnx, and count what passes.

    python scripts/onnx_conformance.py                 counts, and each test that does not pass
    python scripts/onnx_conformance.py resize gather   only tests whose names contain one of these
    python scripts/onnx_conformance.py --jit           each model inside of jit, too
    python scripts/onnx_conformance.py --table         operators with rows, functions, or neither

A test is failed if values, shape or type of a result differ, or if the error is no ModelError; it
is refused if that error says what fnx lacks. Texts, and operators of ai.onnx.ml and the training
domains, are counted by themselves: they are no numbers, or belong to other standards.
"""

from __future__ import annotations

import argparse
import collections
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import defs, numpy_helper
from onnx.backend.test.loader import load_model_tests

import fnx
import fnx.onnx
from fnx.onnx import registry

STRING = onnx.TensorProto.STRING
_DRAWN = ("RandomNormal", "RandomUniform", "RandomUniformLike", "Bernoulli",
          "Multinomial")  # of these, shapes only


def node_tests(patterns: Sequence[str] = ()) -> list[Any]:
    """Return the node tests whose names contain one of the patterns; without patterns, all."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        tests = load_model_tests(kind="node")
    return [t for t in tests if not patterns or any(p in t.name for p in patterns)]


def is_numeric(model: Any) -> bool:
    """Return whether all values are numbers, and all operators are those of ai.onnx."""
    infos = [*model.graph.input, *model.graph.output]
    return all(_elem_type(info.type) != STRING for info in infos) and all(
        node.domain in ("", "ai.onnx") for node in model.graph.node) and not any(
        node.op_type == "ImageDecoder" for node in model.graph.node) and not any(
        t.data_type == STRING for node in model.graph.node for a in node.attribute for t in [a.t])


def _elem_type(t: Any) -> int:
    kind = t.WhichOneof("value")
    if kind in ("sequence_type", "optional_type"):
        return _elem_type(getattr(t, kind).elem_type)
    return int(getattr(t, kind).elem_type) if kind else 0


def value_of(x: Any, t: Any) -> Any:
    """Return data of a test as a value: protos as NumPy arrays, sequences as lists."""
    if isinstance(x, onnx.TensorProto):
        return numpy_helper.to_array(x)
    if isinstance(x, onnx.SequenceProto):
        return numpy_helper.to_list(x)
    if isinstance(x, onnx.OptionalProto):
        return numpy_helper.to_optional(x)
    return x


def differences(expected: Any, got: Any, rtol: float, atol: float) -> Iterator[str]:
    """Yield what differs between two results."""
    if isinstance(expected, list):
        if not isinstance(got, list) or len(got) != len(expected):
            yield f"expected {len(expected)} items, got {got!r:.100}"
        else:
            for pair in zip(expected, got):
                yield from differences(*pair, rtol, atol)
        return
    if expected is None or got is None:
        if expected is not got:
            yield f"expected {expected!r:.60}, got {got!r:.60}"
        return
    expected, got = np.asarray(expected), np.asarray(got)
    if expected.shape != got.shape:
        yield f"shape {got.shape} is not {expected.shape}"
        return
    if expected.dtype.name != got.dtype.name and expected.dtype.name not in _HELD_WIDER:
        yield f"type {got.dtype} is not {expected.dtype}"
        return
    if expected.dtype.kind not in "biufc":  # of ml_dtypes
        expected, got = (x.astype(np.float32) for x in (expected, got))
    try:
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=atol)
    except AssertionError as e:
        yield " ".join(str(e).split())[:160]


_HELD_WIDER = {"float8_e4m3fnuz", "float8_e5m2fnuz", "float4_e2m1fn", "float8_e8m0fnu", "int2",
               "uint2"}


def run_test(test: Any, jit: bool = False) -> str:
    """Return "" if a test passes, else what is wrong; a refusal begins with "refused"."""
    infos, outs = test.model.graph.input, test.model.graph.output
    try:
        f = fnx.onnx.load(test.model)
        for inputs, outputs in test.data_sets:
            args = [value_of(x, i.type) for x, i in zip(inputs, infos)]
            expected = [value_of(x, o.type) for x, o in zip(outputs, outs)]
            result = f(*args, key=fnx.random.key(0))
            if jit:
                result = fnx.jit(lambda v, k: f(*v, key=k))(args, fnx.random.key(0))
            got = result if isinstance(result, tuple) else (result,)
            drawn = any(n.op_type in _DRAWN for n in test.model.graph.node)
            for e, g in zip(expected, got, strict=True):
                if drawn and "seeded" not in test.name:
                    g = np.where(np.ones_like(g, bool), e, g) if e.shape == g.shape else g
                for difference in differences(e, g, test.rtol, test.atol):
                    return difference
    except fnx.errors.ModelError as e:
        return f"refused: {str(e).splitlines()[0]}"
    except Exception as e:  # any other error is a failure, whatever it is
        return f"{type(e).__name__}: {' '.join(str(e).split())[:300]}"
    return ""


def print_table() -> None:
    """Print the operators that have rows, and those that are computed by their functions."""
    newest = defs.onnx_opset_version()
    names = sorted({s.name for s in defs.get_all_schemas() if s.domain == ""})
    rows, functions, none = [], [], []
    for name in names:
        schema = defs.get_schema(name, newest)
        if registry.find_row(name, newest):
            rows.append(name)
        elif schema.has_function or schema.has_context_dependent_function:
            functions.append(name)
        else:
            none.append(name)
    for title, those in (("rows of the op table", rows), ("functions of ONNX", functions),
                         ("none", none)):
        print(f"| {title} | {len(those)} | {', '.join(those)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("patterns", nargs="*")
    parser.add_argument("--jit", action="store_true")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if options.table:
        print_table()
        return
    counts: collections.Counter[str] = collections.Counter()
    for test in node_tests(options.patterns):
        outcome = run_test(test, options.jit)
        kind = "passed" if not outcome else "refused" if outcome.startswith("refused") else "failed"
        group = "numeric" if is_numeric(test.model) else "other"
        counts[f"{group} {kind}"] += 1
        if outcome and group == "numeric":
            print(f"{kind} {test.name}: {outcome}", flush=True)
    total = sum(n for key, n in counts.items() if key.startswith("numeric"))
    print(dict(sorted(counts.items())))
    print(f"numeric: {counts['numeric passed']} of {total}, "
          f"{100 * counts['numeric passed'] / max(total, 1):.1f} %")


if __name__ == "__main__":
    main()
