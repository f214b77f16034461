r"""JAX's words for errors of fnx: code written for JAX matches messages, and people look them up.

An error raised under ``fnx.as_jax`` ends with a line in JAX's words, if the table has a row whose
pattern occurs in its message or hint. The first such row counts. ``tests/machinery/errors.txt``
compares them with JAX.

>>> words_of_jax("while_loop: expected f to return a bool scalar, got float32[]")
'cond_fun must return a boolean scalar, but got output type(s) [float32[]].'
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

Words = str | Callable[[re.Match[str]], str]

_TRACED = r"expected a concrete value, got a traced (\w+\[[^\]]*\])"


def _traced(words: str) -> Words:
    """Return words about a traced value that end with the arguments it depends on."""
    def fill(match: re.Match[str]) -> str:
        names = (match[4] or "").removeprefix("s ").strip().split(", ")
        several = "s" * (len(names) > 1)
        return match.expand(text) + f" the value{several} of the argument{several} " \
            f"{' and '.join(names)}."
    text = (words + r" The error occurred while tracing the function \3 for \2. This concrete "
            r"value was not available in Python because it depends on")
    return fill


def _transform(hint: str) -> str:
    """Return the pattern of an error about a traced value, by what its hint is about."""
    return (rf"(?s){_TRACED}.*?: (\w+) of (\S+) traces with abstract values"
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
        r"Non-hashable static arguments are not supported. Static argument (index \1) of type "
        r"<class '\3'> for function \2 is non-hashable.",
    r"expected static_argnums below (\d+), got (\d+)":
        r"Jitted function has static_argnums=(\2,), but only accepts \1 positional arguments.",
    r"missing a required argument: ('\w+')": r"missing 1 required positional argument: \1",
    r"expected a function, got a generator": "Expected a function, got a generator function",
    r"(scan|associative_scan): expected a function(?: as \w+)?, got (\w+)":
        r"lax.\1: fn argument should be callable; f argument to \1 must be callable, got \2",
    r"(?:cond|switch|while_loop|fori_loop): expected a function(?: as \w+)?, got (\w+)":
        "lax.cond: true_fun and false_fun arguments should be callable; body_fun and cond_fun "
        "arguments should be callable.",
    r"expected a function(?: as \w+)?, got (\w+)": r"Expected a callable value, got \1",
    r"argument (\S+) of (.*?): expected an array or a number, got (\w+)":
        r"Error interpreting argument to \2 as an abstract array. The problematic value is of type "
        r"<class '\3'> and was passed to the function at path \1. Argument of type <class '\3'> "
        "is not a valid JAX type.",
    r"result of (.*?): expected an array or a number, got (\w+)":
        r"function \1 traced for jit returned a value of type <class '\2'>, which is not a valid "
        "JAX type.",
    r"expected an array or a number, got (\w+)": _NOT_JAX,
    r"got one that was (?:donated|deleted)[^\n]*?: (\w+\[[^\]]*\])":
        r"Array has been deleted with shape=\1.",
    r"a traced (\w+\[[^\]]*\]) that outlived its trace: (\w+) of (\S+)":
        "Encountered an unexpected tracer. A function transformed by JAX had a side effect, "
        r"allowing for a reference to an intermediate value with type \1 to escape the scope of "
        r"the transformation. The function being traced when the value leaked was \3 traced for "
        r"\2.",
}

_VALUES: dict[str, Words] = {
    _transform("Python's `if`"): _traced(
        r"Attempted boolean conversion of traced array with shape \1."),
    _transform("traced length"): _traced(
        r"The __index__() method was called on traced array with shape \1."),
    _transform("compute with fnx.numpy, or pass"): _traced(
        "The numpy.ndarray conversion method __array__() was called on traced array with shape "
        r"\1."),
    rf"(?s){_TRACED}.*shapes and axes must be":
        r"Shapes must be 1D sequences of concrete values of integer type, got traced array with "
        r"shape \1.",
    _TRACED: r"Abstract tracer value encountered where concrete value is expected: traced array "
             r"with shape \1.",
    r"expected a bool mask with a concrete value":
        "Array boolean indices must be concrete; got traced array.",
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
    r"expected a float array as differentiated argument \S+, got (\w+)\n": _NOT_JAX,
    r"grad: expected real results, got (\w+)":
        "grad requires real-valued outputs (output dtype that is a sub-dtype of np.floating), but "
        r"got \1. For holomorphic differentiation, pass holomorphic=True.",
    r"(jac\w+): expected real arguments, got (\w+)":
        r"\1 requires real-valued inputs (input dtype that is a sub-dtype of np.floating), but got "
        r"\2. For holomorphic differentiation, pass holomorphic=True.",
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
    r"expected a cotangent of shape (.*), got (.*)":
        r"Shape of cotangent input to vjp pullback function \2 must be the same as the shape of "
        r"corresponding primal output \1: cotangent type does not match function output",
    r"expected float arguments, got (\w+)":
        r"linear_transpose only supports [float and complex] inputs. Got dtype \1",
    r"grad of .*: expected argnums among (\d+) positional arguments, got (\d+)":
        lambda m: f"differentiating with respect to argnums={m[2]} requires at least "
        f"{int(m[2]) + 1} positional arguments to be passed by the caller, but got only {m[1]} "
        "positional arguments.",
    r"expected rules for (.*), made with custom_jvp, got none":
        r"No JVP defined for custom_jvp function \1 using defjvp.",
    r"expected rules for (.*), made with custom_vjp, got none":
        r"No VJP defined for custom_vjp function \1 using defvjp.",
    r"expected rules for (.*), made with custom_vmap, got none":
        r"No batching rule defined for custom_vmap function \1 using def_vmap.",
    r"expected the jvp rule (.*) of (.*) to return a pair":
        r"Custom JVP rule \1 for function \2 must produce a pair (list or tuple of length two) "
        "representing primal and tangent outputs.",
    r"expected the jvp rule (.*) of (.*) to return tangents like the results, (.*), got (.*)":
        r"Custom JVP rule \1 for function \2 must produce primal and tangent outputs with equal "
        r"container (pytree) structures, but got \3 and \4 respectively.",
    r"expected the jvp rule (.*) of (.*) to return tangent like the result, (.*), got (.*)":
        "Custom JVP rule must produce primal and tangent outputs with corresponding shapes and "
        r"dtypes. Expected \3 (tangent type of \3) but got \4.",
    r"expected the jvp rule (.*) of (.*) to return result like the function, (.*), got (.*)":
        r"Custom JVP rule \1 for function \2 must produce a pair (list or tuple of length two) "
        "where the first element represents the primal output (equal in value to the output of "
        r"the custom_jvp-decorated function \2, and in particular of the same container/pytree "
        r"structure), but instead the JVP rule output's first element had \4, not \3.",
    r"expected the fwd rule (.*) of (.*) to return a pair":
        r"Custom VJP fwd rule \1 for function \2 must produce a pair (list or tuple of length two) "
        "where the first element represents the primal output and the second residuals.",
    r"expected the fwd rule (.*) of (.*) to return result like the function, (.*), got (.*)":
        r"Custom VJP fwd rule \1 for function \2 must produce a pair (list or tuple of length two) "
        r"where the first element represents the primal output, of type \3, but got \4. It must "
        "produce an output with the same container (pytree) structure, and shapes/dtypes.",
    r"expected the bwd rule (.*) of (.*) to return cotangent\[(.*)\] like the argument, (.*), "
    r"got (.*)":
        "Custom VJP bwd rule must produce an output with the same type as the args tuple of the "
        r"primal function, but at output[\3] the bwd rule produced an output of type \5 "
        r"corresponding to an input of type \4.",
    r"expected the bwd rule (.*) of (.*) to return a tuple of .*, got (\w+) of (\d+)":
        r"Custom VJP bwd rule \1 for function \2 must produce an output with the same container "
        r"(pytree) structure as the args tuple of the primal function, but got \3 of \4.",
    r"expected the bwd rule (.*) of (.*) to return a tuple.*, got (\w+)":
        r"Custom VJP bwd rule \1 for function \2 must produce a tuple of as many gradients as "
        r"arguments, but got \3.",
    r"while_loop.*(?:reverse|derivative)|expected a loop .*reverse":
        "Reverse-mode differentiation does not work for lax.while_loop or lax.fori_loop with "
        "dynamic start/stop values. Try using lax.scan, or using fori_loop with static start/stop.",
}

_CARRY = "body function carry input and carry output must have"
_CONTROL_FLOW: dict[str, Words] = {
    r"scan: expected .* to return \(carry, output of the step\), got (.*)":
        r"scan body output must be a pair, got \1.",
    r"(?s)scan: expected .* to return a carry of the structure that it was given: (.*)":
        rf"scan {_CARRY} the same pytree structure, but they differ: \1.",
    r"(scan|while_loop|fori_loop): expected .* to return a carry of the structure .*: (.*)":
        rf"\1 {_CARRY} the same pytree structure, but they differ: \2.",
    r"(scan|while_loop|fori_loop): expected .*carry.*, got (.*)":
        rf"\1 {_CARRY} equal types, but they differ: \2.",
    r"scan: expected one length, got (\d+) of length= and (\d+)":
        r"scan got `length` argument of \1 which disagrees with leading axis sizes [\2].",
    r"scan: expected one length, got (.*)":
        lambda m: "scan got values with different leading axis sizes: "
        f"{', '.join(re.findall(r'([0-9]+) of', m[1]))}.",
    r"scan: expected arrays with a leading axis to scan over, got (.*)":
        r"scan got value with no leading axis to scan over: \1.",
    r"scan: expected arrays to scan over or a length, got neither":
        "scan got no values to scan over and `length` not provided.",
    r"while_loop: expected .* to return a bool scalar, got ([(\[{].*)":
        r"cond_fun must return a boolean scalar, but got pytree \1.",
    r"while_loop: expected .* to return a bool scalar, got (.*)":
        r"cond_fun must return a boolean scalar, but got output type(s) [\1].",
    r"fori_loop: expected (lower|upper) as an integer scalar, got (\w+)":
        r"arguments to fori_loop must have equal types; lower and upper, got \2",
    r"cond: expected a bool scalar as predicate, got (\w+)$|"
    r"cond: expected a bool scalar as predicate, got (\w+)\n":
        "Pred must be a scalar; Pred type must be either boolean or number",
    r"cond: expected a bool scalar as predicate, got (.*)": r"Pred must be a scalar, got \1",
    r"expected branches with results of one structure, got (.*) of .* and (.*) of":
        "cond branch outputs must have the same pytree structure, but they differ; branch 0 and 1 "
        r"outputs: true_fun and false_fun output must have same type structure, got \1 and \2.",
    r"cond: expected branches with results of one type, got (.*) and (.*) as":  # false comes first
        "cond branches must have equal output types but they differ; true_fun and false_fun "
        r"output must have identical types, got \2 and \1.",
    r"expected branches with results of one type, got (.*) and (.*) as":
        "cond branches must have equal output types but they differ; true_fun and false_fun "
        r"output must have identical types, got \1 and \2.",
    r"switch: expected an integer scalar as index, got (\w+)\[\]":
        r"Index type must be an integer, got \1.",
    r"switch: expected an integer scalar as index, got (\w+)\n":
        r"Index type must be an integer, got <class '\1'>.",
    r"switch: expected an integer scalar as index, got (.*)":
        r"Branch index must be scalar, got \1.",
    r"fori_loop: expected Python integers as bounds with unroll=":
        "Can only use `unroll` in `fori_loop` if the loop bounds are statically known.",
    r"switch: expected branches, got none": "Empty branch sequence",
    r"associative_scan: expected equal lengths":
        "Array inputs to associative_scan must have the same first dimension.",
}

_EFFECTS: dict[str, Words] = {
    r"expected a derivative for pure_callback":
        "Pure callbacks do not support JVP. Please use `jax.custom_jvp` to use callbacks while "
        "taking gradients.",
    r"expected a derivative for io_callback":
        "IO callbacks do not support JVP. Please use `jax.custom_jvp` to use callbacks while "
        "taking gradients.",
    r"expected vmap_method among (.*), got (.*)":
        r"vmap_method must be on of the allowed methods \1, but got: \2",
    r"callback: expected a function to call, got (\w+)":
        "first argument to jax.debug.callback must be callable, but got an object of type "
        r"<class '\1'>",
    r"(\w+): expected no (?:NaN|NaN or infinity), got (nan|-?inf) from":
        r"invalid value (\2) encountered in \1",
    r"expected the name of an open axis, got '(\w+)'": r"unbound axis name: \1",
    r"expected each reference as one argument, got a (.*) at both (.*) and (\S+)":
        "only one reference to a mutable array may be passed as an argument to a function, but "
        r"when tracing the function for jit the mutable array reference of type \1 appeared at "
        r"both \2 and \3.",
    r"expected (.*) to read the argument, got a (.*) that is an argument and is":
        r"when tracing \1 for jit, a mutable array reference of type \2 was both closed over and "
        "passed as the argument.",
    r"expected (.*) to return no reference, got a (.*) at (\S+)":
        r"function \1 traced for jit returned a mutable array reference of type \2 at output "
        r"tree path \3, but mutable array references cannot be returned.",
    r"result of (.*): expected an array or a number, got a (Ref\S*)":
        r"function \1 traced for jit returned a mutable array reference of type \2, but mutable "
        "array references cannot be returned.",
    r"named_scope: expected a text, got (.*)":
        r"named_scope name argument must be a string, got \1",
    r"device_put: expected .* at .*, got":
        "device_put device specification must be a tree prefix of the corresponding value",
}

_COMPILED: dict[str, Words] = {
    r"was compiled for (\w+\[.*?\]) as (\S+), got (\w+\[.*?\])":
        "Argument types differ from the types for which this computation was compiled. The "
        r"mismatches are: Argument '\2' compiled with \1 and called with \3",
    r"expected arguments like (.*), for which it was compiled; got (.*)":
        "Function compiled with input pytree does not match the input pytree it was called with: "
        r"compiled with PyTreeDef(\1) and called with PyTreeDef(\2)",
    r"compiled for one signature: expected arrays with values, got a traced array":
        "Cannot apply JAX transformations to a function lowered and compiled for a particular "
        "signature. Detected argument of Tracer type.",
    r"export: expected a jitted function, got (.*)":
        r"Function to be exported must be the result of `jit` or of `pmap`, but is: \1",
    r"(\S+): expected arguments like those it was exported for: (.*)":
        "The invocation args and kwargs must have the same pytree structure as when the function "
        r"'\1' was exported, but they have the following structural differences: \2",
    r"^(\S+): expected (\w+)\[\], got (\w+)\[\]":
        r"Dtype mismatch for args[0]: expected \2, got \3",
    r"^(\S+): expected (\w+\[.*\]), got (\w+\[.*\])\n.*export":
        r"Shape or rank mismatch for args[0]: expected \2, got \3",
}

_ARRAYS: dict[str, Words] = {
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
        r"\1 got incompatible shapes for broadcasting: \2, \3.",
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
    (re.compile(pattern), words) for table in (_CONTROL_FLOW, _EFFECTS, _COMPILED, _ARRAYS, _VMAP,
                                               _DERIVATIVES, _CALLS, _VALUES, _SETTINGS, _TREES)
    for pattern, words in table.items())


def words_of_jax(text: str, f: Callable[..., Any] | None = None) -> str:
    """Return JAX's words for the message and the hint of an error, or nothing.

    JAX names arguments by the parameters of the function, ``f``, where it is known.
    """
    for pattern, words in _ROWS:
        match = pattern.search(text)
        if match is not None:
            said = words(match) if callable(words) else match.expand(words)
            return said if f is None else _with_parameters(said, f)
    return ""


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
