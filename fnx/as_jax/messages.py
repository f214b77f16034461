r"""JAX's words for errors of fnx: code written for JAX matches messages, and people look them up.

An error raised under ``fnx.as_jax`` ends with a line in JAX's words, if the table has a row whose
pattern occurs in its message or hint. The first such row counts. ``tests/machinery/errors.txt``
compares them with JAX.

>>> words_of_jax("while_loop: expected f to return a bool scalar, got float32[]")
'cond_fun must return a boolean scalar, but got output type(s) [ShapedArray(float32[])].'
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from fnx.as_jax.message_rows import COMPILED, CONTROL_FLOW, EFFECTS, MACHINERY, RULES, Words

_TRACED = r"expected a concrete value, got a traced (\w+\[[^\]]*\])"


def _traced(words: str) -> Words:
    """Return words about a traced value that end with the arguments it depends on."""
    def fill(match: re.Match[str]) -> str:
        if not match[4]:
            return match.expand(words)
        names = match[4].removeprefix("s ").strip().split(", ")
        several = "s" * (len(names) > 1)
        static = " Consider using the `static_argnums` parameter of `jax.checkpoint` for it." \
            if match[2] == "checkpoint" else ""
        return match.expand(text) + f" the value{several} of the argument{several} " \
            f"{' and '.join(names)}.{static}"
    text = (words + r" The error occurred while tracing the function \3 for \2. This concrete "
            r"value was not available in Python because it depends on")
    return fill


def _transform(hint: str, caller: str = "") -> str:
    """Return the pattern of an error about a traced value, by what its hint is about."""
    return (rf"(?s){caller}{_TRACED}.*?: (\w+) of (\S+) traces with abstract values"
            rf"(?:; it depends on the argument(s? [^\n]*))?.*{hint}")


def _sizes(match: re.Match[str]) -> str:
    """Return the sizes of mapped axes, as a list, the most frequent first."""
    each = re.findall(r"(\d+) at (\S+) \((\w+)\[([^\]]*)\], axis (-?\d+)\)", match[1])
    counts = Counter(n for n, *_ in each).most_common()
    most = "most" if len(counts) == 1 or counts[0][1] > counts[1][1] else "some"
    lines = []
    for size, count in counts:
        _, path, t, shape, axis = next(row for row in each if row[0] == size)
        example = f"axis {axis} of argument {path} of type {t}[{shape.replace(' ', '')}]"
        lines.append(f"  * one axis had size {size}: {example}" if count == 1 else
                     f"  * {most} axes ({count} of them) had size {size}, e.g. {example}")
        most = "some"
    return "\n".join(["vmap got inconsistent sizes for array axes to be mapped:",
                      ";\n".join(lines)])


def _no_axis(match: re.Match[str]) -> str:
    axis, shape = int(match[1]), match[2].replace(" ", "")
    rank = len(shape.split(",")) if shape else 0
    need = axis + 1 if axis >= 0 else -axis
    return (f"vmap was requested to map its argument along axis {axis}, which implies that its "
            f"rank should be at least {need}, but is only {rank} (its shape is "
            f"({', '.join(shape.split(','))}{',' if rank == 1 else ''}))")


def _scalar_output(match: re.Match[str]) -> str:
    shape = match[1].replace(" ", "")
    return ("Gradient only defined for scalar-output functions. Output had shape: "
            f"({', '.join(shape.split(','))}{',' if shape and ',' not in shape else ''}).")


def _structure(match: re.Match[str]) -> str:
    """Return how two pytrees differ: in the type, the length or the keys of a container."""
    want, path, got = match.groups()
    where = f" at key path\n    tree{path or ''}"
    kind = {"{": "dict", "(": "tuple", "[": "list", "*": "leaf"}
    left, right = kind.get(want[0], want.partition("(")[0]), got.split(" ")[0]
    if want == "None":
        return f"Expected None, got {got}."
    if left != right:
        return (f"pytree structure error: different types{where}: Expected {left}, got {got}. "
                "Custom node type mismatch")
    if left == "dict":
        return ("pytree structure error: different pytree metadata" + where +
                f": Dict key mismatch; expected {want}, got {got}.")
    return (f"pytree structure error: different lengths of {left}{where}: "
            f"{left.capitalize()} arity mismatch; expected {want}, got {got}.")


def _leaves(match: re.Match[str]) -> str:
    n, got = int(match[1]), int(match[2])
    return f"Too few leaves for PyTreeDef; expected {n}, got {got}." if got < n else \
        f"Too many leaves for PyTreeDef; expected {n}."


_NOT_JAX = r"Argument of type <class '\1'> is not a valid JAX type"
_CALLS: dict[str, Words] = {
    r"expected a hashable value for static argument '(.*)' of (.*), got (\w+)":
        r"Non-hashable static arguments are not supported (unhashable type). Static argument '\1' "
        r"of type <class '\3'> for function \2 is non-hashable.",
    r"expected a hashable value for static argument (.*) of (.*), got (\w+)":
        r"Non-hashable static arguments are not supported. An error occurred while trying to hash "
        r"an object of type <class '\3'>: static argument (index \1) of function \2.",
    r"expected static_argnums below (\d+), got (\d+)":
        r"Jitted function has static_argnums=(\2,), but only accepts \1 positional arguments.",
    r"missing a required argument: ('\w+')": r"missing 1 required positional argument: \1",
    r"expected parameters as static_argnames, got ('\w+')":
        r"Jitted function has invalid argnames {\1} in static_argnames. Function does not take "
        "these args.",
    r"expected integers, slices or bool masks as an index, got ('.*')":
        r"JAX does not support string indexing; got idx=\1",
    r"index: expected an index other than a bare list":
        "Using a non-tuple sequence for multidimensional indexing is not allowed; use "
        "`arr[array(seq)]` instead of `arr[seq]`.",
    r"expected a function, got a generator": "Expected a function, got a generator function",
    r"expected a function(?: as \w+)?, got (\w+)": r"Expected a callable value, got \1",
    r"argument (\S+) of (.*?): expected an array or a number, got (\w+)":
        r"Error interpreting argument to \2 as an abstract array. The problematic value is of type "
        r"<class '\3'> and was passed to the function at path \1. Argument of type <class '\3'> "
        "is not a valid JAX type.",
    r"result (\S+) of (.*?): expected an array or a number, got (?!Ref)(\w+)":
        r"function \2 traced for jit returned a value of type <class '\3'> at output component "
        r"\1, which is not a valid JAX type.",
    r"result of (.*?): expected an array or a number, got (\w+)":
        r"function \1 traced for jit returned a value of type <class '\2'>, which is not a valid "
        "JAX type.",
    r"expected an array or a number, got (\w+)": _NOT_JAX,
    r"got one that was (?:donated|deleted)[^\n]*?: (\w+\[[^\]]*\])":
        r"Array has been deleted with shape=\1.",
    r"a traced (\w+\[[^\]]*\]) that outlived its trace: (\w+) of (\S+)(?: called at (\S+))?":
        lambda m: "Encountered an unexpected tracer. A function transformed by JAX had a side "
        "effect, allowing for a reference to an intermediate value with type "
        f"{m[1].replace(' ', '')} wrapped in a DynamicJaxprTracer to escape the scope of the "
        f"transformation. The function being traced when the value leaked was {m[3]}"
        f"{f' at {m[4]}' if m[4] else ''} traced for {m[2]}.",
}

_VALUES: dict[str, Words] = {
    _transform("Python's `if`"): _traced(
        r"Attempted boolean conversion of traced array with shape \1."),
    _transform("traced length"): _traced(
        r"The __index__() method was called on traced array with shape \1."),
    _transform("compute with fnx.numpy, or pass"): _traced(
        "The numpy.ndarray conversion method __array__() was called on traced array with shape "
        r"\1."),
    _transform("shapes and axes must be"): _traced(
        "Shapes must be 1D sequences of concrete values of integer type, got traced array with "
        r"shape \1.\nIf using `jit`, try using `static_argnums` or applying `jit` to smaller "
        "subfunctions."),
    _transform("", r"np\.\w+: "): _traced(
        "The numpy.ndarray conversion method __array__() was called on traced array with shape "
        r"\1."),
    **{_transform("", rf"{name}\(\): "): _traced(
        "Abstract tracer value encountered where concrete value is expected: traced array with "
        rf"shape \1\nThe problem arose with the `{name}` function. If trying to convert the data "
        rf"type of a value, try using `x.astype({name})` or `jnp.array(x, {name})` instead.\n")
        for name in ("int", "float", "complex")},
    _transform(""): _traced("Abstract tracer value encountered where concrete value is expected: "
                            r"traced array with shape \1."),
    _TRACED: r"Abstract tracer value encountered where concrete value is expected: traced array "
             r"with shape \1.",
    r"expected a bool mask with a concrete value, got a traced one of shape (\[.*?\]):":
        r"Array boolean indices must be concrete; got bool\1.",
    r"unhashable: expected": "unhashable type: Array",
    r"len\(\): expected an array of at least":
        "len() of unsized object; iteration over a 0-d array",
    r"has no len\(\)": "len() of unsized object",
    r"bool\(\): expected an array of one element, got shape \((.*?0.*)\)":
        "The truth value of an empty array is ambiguous.",
    r"bool\(\): expected an array of one element":
        "The truth value of an array with more than one element is ambiguous. Use a.any() or "
        "a.all()",
    r"\w+\(\): expected an array of one element": "Only scalar arrays can be converted to Python "
                                                  "scalars",
    r"cannot assign into an Array":
        "'Array' object does not support item assignment. JAX arrays are immutable and do not "
        "support in-place item assignment. Instead of x[idx] = y, use x = x.at[idx].set(y) or "
        "another .at[] method",
    r"expected a 0-d array of integers as an index":
        "Only integer scalar arrays can be converted to a scalar index.",
}

_VMAP: dict[str, Words] = {
    r"expected in_axes to be an int, None, or a tuple.*?; got (.*)":
        "vmap in_axes must be an int, None, or a tuple of entries corresponding to the positional "
        r"arguments passed to the function, but got \1.",
    r"expected in_axes for (\d+) positional arguments, got (\d+)":
        "vmap in_axes must be an int, None, or a tuple of entries corresponding to the positional "
        r"arguments passed to the function, but got len(in_axes)=\2, len(args)=\1",
    r"expected one size of all mapped axes, got (.*)": _sizes,
    r"vmap of .*expected at least one mapped argument, got none":
        "vmap must have at least one non-None value in in_axes; vmap wrapped function must be "
        "passed at least one argument containing an array",
    r"expected an axis (-?\d+) to map over at .*?, got \w+\[([^\]]*)\]": _no_axis,
    r"(\w+_axes) of vmap of .*: expected an int, None or a tree like (.*) at .*, got (.*)":
        r"vmap \1 specification must be a tree prefix of the corresponding value, got "
        r"specification \3 for value tree PyTreeDef(\2).",
    r"(in_axes) of vmap of .*: expected ints and None, got (.*) at":
        r"vmap \1 must be an int, None, or (nested) container with those types as leaves, but "
        r"got \2.",
    r"expected out_axes to be an int, None, or a pytree.*; got (.*)":
        "vmap out_axes must be an int, None, or a (nested) container with those types as leaves, "
        r"but got \1.",
    r"expected an unbatched result for out_axes=None":
        "vmap has mapped output but out_axes is None: at vmap out_axes, got axis spec None but "
        "output was batched on axis 0",
}

_DERIVATIVES: dict[str, Words] = {
    r"expected a float scalar as result, got (u?int\d+|bool)":
        "grad requires real-valued outputs (output dtype that is a sub-dtype of np.floating), but "
        r"got \1.",
    r"expected a float scalar as result, got \w+\[([^\]]*)\]": _scalar_output,
    r"expected a scalar as result, got arrays in (.*)":
        r"Gradient only defined for scalar-output functions. Output was \1.",
    r"expected a float array as differentiated argument \S+, got (u?int\d+|bool)":
        "grad requires real- or complex-valued inputs (input dtype that is a sub-dtype of "
        r"np.inexact), but got \1. If you want to use Boolean- or integer-valued inputs, use vjp "
        "or set allow_int to True. (jacrev requires real- or complex-valued inputs (input dtype "
        r"that is a sub-dtype of np.inexact), but got \1. jacfwd requires real-valued inputs "
        r"(input dtype that is a sub-dtype of np.floating), but got \1.)",
    r"expected float results of .*, got (\w+)\[":
        "jacrev requires real-valued outputs (output dtype that is a sub-dtype of np.floating), "
        r"but got \1. grad requires real-valued outputs (output dtype that is a sub-dtype of "
        r"np.floating), but got \1.",
    r"(\w+) with holomorphic=True: expected complex arguments, got (\w+)":
        r"\1 with holomorphic=True requires inputs with complex dtype, but got \2.",
    r"(\w+) with holomorphic=True: expected complex results, got (\w+)":
        r"\1 with holomorphic=True requires outputs with complex dtype, but got \2.",
    r"has_aux=True: expected .* to return \(result, aux\), got (\w+)":
        "expected function with aux output to return a two-element tuple, but got type "
        r"<class '\1'>",
    r"expected a float array as differentiated argument \S+, got (str) ('.*')\n":
        r"Argument \2 of type <class '\1'> is not a valid JAX type.",
    r"expected a float array as differentiated argument \S+, got (\w+)\n": _NOT_JAX,
    r"expected None or float0 as the tangent at \S+, which is (\w+)":
        "primal and tangent arguments to jax.jvp do not match; dtypes must be equal, or in case of "
        r"int/bool primal dtype the tangent dtype must be float0. Got primal dtype \1 and so "
        "expected tangent dtype [('float0', 'V')].",
    r"(grad|jacrev): expected real results, got (\w+)":
        r"\1 requires real-valued outputs (output dtype that is a sub-dtype of np.floating), but "
        r"got \2. For holomorphic differentiation, pass holomorphic=True. For differentiation of "
        "non-holomorphic functions involving complex outputs, use jax.vjp directly.",
    r"(jac\w+): expected real arguments, got (\w+)":
        r"\1 requires real-valued inputs (input dtype that is a sub-dtype of np.floating), but got "
        r"\2. For holomorphic differentiation, pass holomorphic=True. For differentiation of "
        "non-holomorphic functions involving complex inputs, use jax.jvp directly.",
    r"expected primals and tangents as tuples or lists, got (\w+) and (\w+)":
        r"primal and tangent arguments to jax.jvp must be tuples or lists; found \1 and \2.",
    r"expected a tangent for (\S+), which is":
        "primal and tangent arguments to jax.jvp must have the same tree structure",
    r"expected a tangent at (\S+) of shape (.*), got (.*)":
        r"jvp called with different primal and tangent shapes;Got primal shape \2 and tangent "
        r"shape as \3: linearized function called on tangent values inconsistent with the "
        "original primal values",
    r"expected a tangent at (\S+) of (\w+), got (\w+)":
        "primal and tangent arguments to jax.jvp do not match; dtypes must be equal, or in case "
        r"of int/bool primal dtype the tangent dtype must be float0.Got primal dtype \2 and so "
        r"expected tangent dtype \2, but got tangent dtype \3 instead.",
    r"expected a cotangent like the result, (.*); got (.*)":
        r"unexpected tree structure. The argument to a VJP function returned by `jax.vjp` must "
        r"match the pytree structure of the differentiated function. Tree structure of cotangent "
        r"input PyTreeDef(\2), and structure of primal output PyTreeDef(\1): cotangent tree does "
        r"not match function output, expected PyTreeDef(\1) but got PyTreeDef(\2)",
    r"expected tangents of the structure of the primals, (.*); got (.*)":
        "primal and tangent arguments to jax.jvp must have the same tree structure; primals have "
        r"tree structure PyTreeDef(\1) whereas tangents have tree structure PyTreeDef(\2).",
    r"expected no (?:NaN|NaN or infinity), got (nan|inf|-inf) (?:from|in) (\w+)":
        r"invalid value (\1) encountered in \2",
    r"pullback: expected one cotangent, a tree like the result, .*; got (\d+) arguments":
        r"The function returned by `jax.vjp` applied to the function was called with \1 arguments, "
        "but functions returned by `jax.vjp` must be called with a single argument corresponding "
        "to the single value returned by the function being differentiated (even if that returned "
        "value is a tuple or other container).",
    r"expected a cotangent of shape (.*), got (.*)":
        r"unexpected JAX type (e.g. shape/dtype) for argument to VJP function: got shape \2, but "
        r"expected shape \1 because the corresponding output of the differentiated function had "
        "it: cotangent type does not match function output",
    r"expected a cotangent of (\w+), got (\w+)":
        r"unexpected JAX type (e.g. shape/dtype) for argument to VJP function: got \2, but "
        r"expected \1 because the corresponding output of the differentiated function had it: "
        "cotangent type does not match function output",
    r"expected arguments that are all floats or all integers, got (\w+)":
        r"linear_transpose only supports [float or complex] -> [float or complex], and integer -> "
        r"integer functions, but got [dtype('\1')]",
    r"expected integers as results of integers, got (\w+)":
        r"linear_transpose only supports [float or complex] -> [float or complex], and integer -> "
        r"integer functions, but got [dtype('int32')] -> [dtype('\1')]",
    r"grad of .*: expected argnums among (\d+) positional arguments, got (\d+)":
        lambda m: f"differentiating with respect to argnums={m[2]} requires at least "
        f"{int(m[2]) + 1} positional arguments to be passed by the caller, but got only {m[1]} "
        "positional arguments.",
    r"expected no forward mode of \S+, which has a custom_vjp":
        "can't apply forward-mode autodiff (jvp) to a custom_vjp function.",
    r"expected a loop of known length in reverse mode":
        "Reverse-mode differentiation does not work for lax.while_loop or lax.fori_loop with "
        "dynamic start/stop values. Try using lax.scan, or using fori_loop with static start/stop.",
}

_PRIMITIVES = {"multiply": "mul", "subtract": "sub", "divide": "div", "true_divide": "div",
               "maximum": "max", "minimum": "min", "remainder": "rem", "power": "pow",
               "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge",
               "equal": "eq", "not_equal": "ne"}
_OPS = {"CMPLT": "lt", "CMPLE": "le", "CMPNE": "ne"}

_ARRAYS: dict[str, Words] = {
    r"(\w+): expected numbers, got NumPy data of dtype":
        r"Error interpreting argument to \1 as a JAX value. The problematic value is of type "
        r"<class 'numpy.ndarray'> and was passed to \1.",
    r"expected one of cpu, .* or gpu, got '(\w+!)'":
        "jax.default_device must be passed either a Device object (e.g. `jax.devices('cpu')[0]`) "
        r"or a platform name string like 'cpu' or 'gpu', got: '\1'",
    r"key: expected impl .* got '(\w+)'": r'unrecognized PRNG implementation "\1".',
    r'expected operands of one dtype, got (.*) and (.*), under numpy_dtype_promotion\("strict"\)':
        r"Input dtypes ('\1', '\2') have no available implicit dtype promotion path when "
        "jax_numpy_dtype_promotion=strict. Try explicitly casting inputs to the desired output "
        "type, or set jax_numpy_dtype_promotion=standard.",
    r"(\w+): expected operands of one rank, got shapes (.*) and (.*)":
        r"Operands could not be broadcast together for \1 on shapes \2 \3 and with the config "
        "option jax_numpy_rank_promotion='raise'.",
    r"where: expected shapes that broadcast, got (.*)":
        r"select cases must have the same shapes, got [\1]. Incompatible shapes for broadcasting: "
        r"shapes=[\1]",
    r"broadcast_\w+: expected shapes that broadcast, got (\(.*?\)) and (\(.*?\))\n":
        r"Incompatible shapes for broadcasting: shapes=[\1, \2]",
    r"expected a GPU: ":
        "Unknown backend: 'gpu' requested, but no platforms that are instances of gpu are present.",
    r"expected one of cpu, .* or gpu, got '(\w+)'": r"Unknown backend \1.",
    r"(\w+): expected shapes that broadcast, got (\(.*?\)) and (\(.*?\))\n":
        lambda m: f"{_PRIMITIVES.get(m[1], m[1])} got incompatible shapes for broadcasting: "
        f"{m[2]}, {m[3]}.",
    r"(\w+): expected operands of one dtype, got (\w+) and (\w+)":
        r"lax.\1 requires arguments to have the same dtypes, got \2, \3. (Tip: jnp.\1 is a similar "
        "function that does automatic type promotion on inputs).",
    r"dot_general: expected equal lengths of axis \d+ of (.*) and axis \d+ of (.*)":
        r"dot_general requires contracting dimensions to have the same shape, got \1 and \2.",
    r"(\w+) does not take ([\w<>]+)":
        lambda m: f"{_OPS.get(m[1], m[1].lower())} does not accept dtype {m[2]}.",
    r"(\S+) and (key<\w+>) have no common type":
        lambda m: f"The operation does not accept dtypes {m[1].replace('*', '32')}, {m[2]}.",
    r"concatenate: expected shapes that agree except along axis \d+, got (.*) and (.*)":
        r"Cannot concatenate arrays with shapes that differ: got \1, \2.",
    r"transpose: expected (\d+) axes, got (.*)":
        r"transpose permutation isn't a permutation of operand dimensions, got permutation \2",
    r"broadcast_in_dim: expected a shape that broadcasts to (.*), got (.*)":
        "broadcast_in_dim operand dimension sizes must either be 1, or be equal to their "
        "corresponding dimensions in the target broadcast shape; got operand of shape "
        r"\2, target broadcast shape \1",
    r"matmul: expected the last axis of .* to match .*, got (\d+) and (\d+)":
        "dot_general requires contracting dimensions to have the same shape, got "
        r"(\1,) and (\2,).",
    r"reshape: expected (\d+) elements, as in (.*); got shape (.*)":
        r"cannot reshape array of shape \2 (size \1) into shape \3",
    r"\w+: expected -(\d+) <= axis < \d+, got (-?\d+)":
        r"axis \2 is out of bounds for array of dimension \1",
    r"index: expected at most (\d+) indices for shape (.*), got (\d+)":
        r"Too many indices: array is \1-dimensional, but \3 were indexed",
    r"index: expected integers, slices or bool masks as an index, got (\w+)":
        r"Indexer must have integer or boolean type, got indexer with type \1",
    r"(\w+): expected an array or a number, got (\w+)\nconvert it":
        r"\1 requires ndarray or scalar arguments, got <class '\2'>; is not a valid JAX type",
    r"vectorize: expected a signature as": "not a valid gufunc signature",
}

_SETTINGS: dict[str, Words] = {
    r"config has no attribute '(\w+)'": r"Unrecognized config option: \1",
    r"config\.\w+: expected one of (.*), got '(.*)'":
        r"new enum value must be in [\1], got \2",
}

_TREES: dict[str, Words] = {
    r"expected (.*?) at (?:the root|path (\S+)), got (.*)": _structure,
    r"expected (\d+) leaves for .*, got (\d+)": _leaves,
    r"expected dict keys that can be sorted":
        "Comparator raised exception while sorting pytree dictionary keys.",
    r"expected a type that is not a pytree yet, got (\w+)":
        r"Duplicate custom PyTreeDef type registration for <class '\1'>.",
    r"expected the fields of \w+, (.*); got (.*)":
        "data_fields and meta_fields must include all dataclass fields with ``init=True`` and only "
        r"them: \1, got \2.",
}

_ROWS: tuple[tuple[re.Pattern[str], Words], ...] = tuple(
    (re.compile(pattern), words) for table in (
        CONTROL_FLOW, RULES, EFFECTS, COMPILED, MACHINERY, _ARRAYS, _VMAP, _DERIVATIVES, _CALLS,
        _VALUES, _SETTINGS, _TREES)
    for pattern, words in table.items())


# How the words of errors begin that JAX explains on a page -> the class.
_ERRORS = "https://docs.jax.dev/en/latest/errors.html"
_PAGES = {
    "Abstract tracer value encountered": "ConcretizationTypeError",
    "Attempted boolean conversion": "TracerBoolConversionError",
    "Array boolean indices must be concrete": "NonConcreteBooleanIndexError",
    "Encountered an unexpected tracer": "UnexpectedTracerError",
    "The __index__() method was called": "TracerIntegerConversionError",
    "The numpy.ndarray conversion method": "TracerArrayConversionError"}


def words_of_jax(text: str, f: Callable[..., Any] | None = None) -> str:
    """Return JAX's words for the message and the hint of an error, or nothing.

    JAX names arguments by the parameters of the function, ``f``, where it is known.
    """
    for pattern, words in _ROWS:
        match = pattern.search(text)
        if match is not None:
            said = words(match) if callable(words) else match.expand(words)
            page = next((name for start, name in _PAGES.items() if said.startswith(start)), "")
            said += f"\nSee {_ERRORS}#jax.errors.{page}" if page else ""
            return said if f is None else _with_line(
                said if "it depends on" in text else _with_parameters(said, f), f)
    return ""


def _with_line(text: str, f: Callable[..., Any]) -> str:
    """Say where the traced function is defined: ``the function f for jit`` -> ``f at m.py:3``."""
    code = getattr(inspect.unwrap(f), "__code__", None)
    if code is None:
        return text
    at = f" at {code.co_filename}:{code.co_firstlineno}"
    return re.sub(r"(tracing the function \S+|^function \S+(?= traced for))", rf"\g<1>{at}", text,
                  count=1)


def _with_parameters(text: str, f: Callable[..., Any]) -> str:
    """Write arguments as the parameters of a function: ``args[0]`` -> ``x``.

    >>> def f(x, *rest, **options): ...
    >>> _with_parameters("args[0]['a'] and args[2] and kwargs['b']", f)
    "x['a'] and rest[1] and options['b']"
    """
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except (ValueError, TypeError):
        return text
    by_position = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    positional = [p.name for p in parameters if p.kind in by_position]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "args")
    named = {p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}
    options = next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), "kwargs")

    def name(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[2] if match[2] in named else f"{options}['{match[2]}']"
        i = int(match[1])
        return positional[i] if i < len(positional) else f"{rest}[{i - len(positional)}]"

    return re.sub(r"\bargs\[(\d+)\]|\bkwargs\['(\w+)'\]", name, text)
