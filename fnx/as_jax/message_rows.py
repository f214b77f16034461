"""JAX's words for errors of loops, rules, effects, compiled functions and jaxprs.

Rows for :mod:`fnx.as_jax.messages`: a pattern of fnx's message and hint -> JAX's words.
"""

from __future__ import annotations

import re
from collections.abc import Callable

Words = str | Callable[[re.Match[str]], str]

_CARRY = "body function carry input and carry output must have"
_TYPE = r"(\w+\[[^\]]*\])"
_UNRESOLVED = (r"The input arguments to the \1-decorated function \2 could not be resolved to "
               "positional-only arguments. Binding failed with the error:\n")
_RULE = r"(\S+)(?: \([^()]*\))?"  # the name of a rule, without its line


def _difference(left: str, right: str) -> str:
    """Return how types differ: ``, so the dtypes do not match, and the shapes do not match.``"""
    (t, a), (u, b) = left.split("["), right.split("[")
    why = ["the dtypes do not match"] * (t != u) + ["the shapes do not match"] * (a != b)
    return f", so {', and '.join(why)}." if why else "."


def _carry_types(match: re.Match[str]) -> str:
    loop, path, before, after = [part.replace(" ", "") for part in match.groups()]
    return (f"{loop} {_CARRY} equal types, but they differ:\n\nThe input carry "
            f"{'component ' * bool(path)}c{path} has type {before} but the corresponding output "
            f"carry component has type {after}{_difference(before, after)}")


def _branch_types(match: re.Match[str]) -> str:
    name, one, other = [part.replace(" ", "") for part in match.groups()]
    first, second = ("true_fun", "false_fun") if name == "cond" else ("branch 0", "branch1")
    if name == "cond":
        one, other = other, one  # fnx lists the branch of False first
    return (f"{name} branches must have equal output types but they differ.\n\nThe output of "
            f"{first} has type {one} but the corresponding output of {second} has type {other}"
            f"{_difference(one, other)} {first} and {second} output must have identical types, "
            f"got {one} and {other}.")


CONTROL_FLOW: dict[str, Words] = {
    r"associative_scan: expected a function(?: as \w+)?, got (\w+)":
        "lax.associative_scan: fn argument should be callable.",
    r"scan: expected a function(?: as \w+)?, got (.*)":
        r"lax.scan: f argument should be a callable; f argument to scan must be callable, got \1",
    r"while_loop: expected a function(?: as \w+)?, got (\w+)":
        "lax.while_loop: body_fun and cond_fun arguments should be callable.",
    r"fori_loop: expected a function(?: as \w+)?, got (\w+)":
        "lax.fori_loop: body_fun argument should be callable.",
    r"switch: expected a function(?: as \w+)?, got (\w+)":
        "lax.switch: branches argument should be a sequence of callables.",
    r"cond: expected a function(?: as \w+)?, got (\w+)":
        "lax.cond: true_fun and false_fun arguments should be callable.",
    r"scan: expected unroll >= 0, got (.*)": r"`unroll` must be a `bool` or a positive `int`.",
    r"scan: expected .* to return \(carry, output of the step\), got (.*)":
        r"scan body output must be a pair, got \1.",
    r"(?s)scan: expected .* to return a carry of the structure that it was given: (.*)":
        rf"scan {_CARRY} the same pytree structure, but they differ:\n\n\1.",
    r"(scan|while_loop|fori_loop): expected .* to return a carry of the structure .*: (.*)":
        rf"\1 {_CARRY} the same pytree structure, but they differ:\n\n\2.",
    rf"(scan|while_loop|fori_loop): expected carry(\S*) of .* to keep its type {_TYPE}.*, "
    rf"got {_TYPE}":
        _carry_types,
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
        r"cond_fun must return a boolean scalar, but got pytree PyTreeDef(\1).",
    r"while_loop: expected .* to return a bool scalar, got (.*)":
        r"cond_fun must return a boolean scalar, but got output type(s) [ShapedArray(\1)].",
    r"fori_loop: expected (lower|upper) as an integer scalar, got (\w+)":
        r"lower and upper arguments to fori_loop must have equal types, got \2 and int32",
    r"cond: expected a bool scalar as predicate, got NoneType": "cond predicate is None",
    r"cond: expected a bool scalar as predicate, got (\w+)(?: '?(.*?)'?)?(?:$|\n)":
        r"Pred must be a scalar, got \2 of type <class '\1'>; Pred type must be either boolean or "
        r"number, got <\1>.",
    r"cond: expected a bool scalar as predicate, got \w+\[(.+)\]":
        r"Pred must be a scalar, got an array of shape (\1).",
    r"cond: expected a bool scalar as predicate, got (.*)": r"Pred must be a scalar, got \1",
    r"switch: expected branches with results of one structure, got (.*) of .* and (.*) of":
        "switch branch outputs must have the same pytree structure, but they differ:\n\nbranch 0 "
        r"and 1 outputs must have same type structure, got \1 and \2.",
    r"expected branches with results of one structure, got (.*) of .* and (.*) of":
        "cond branch outputs must have the same pytree structure, but they differ:\n\n"
        r"true_fun and false_fun output must have same type structure, got \1 and \2.",
    rf"(\w+): expected branches with results of one type, got {_TYPE}.*? and {_TYPE}":
        _branch_types,
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

EFFECTS: dict[str, Words] = {
    r"expected a derivative for pure_callback":
        "Pure callbacks do not support JVP. Please use `jax.custom_jvp` to use callbacks while "
        "taking gradients.",
    r"expected a derivative for io_callback":
        "IO callbacks do not support JVP. Please use `jax.custom_jvp` to use callbacks while "
        "taking gradients.",
    r"expected a vmap_method for (\w+)(?: of \S+)? under vmap, got none":
        r"vmap is only supported for the \1 primitive when vmap_method is one of 'sequential', "
        "'sequential_unrolled', 'expand_dims', 'broadcast_all', or 'legacy_vectorized'. Got "
        "vmap_method=None.",
    r"expected vmap_method among (.*), got (.*)":
        r"vmap_method must be on of the allowed methods \1, but got: \2",
    r"callback: expected a function (?:to call|as callback), got (\w+)":
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

def _exported_shape(match: re.Match[str]) -> str:
    want, got = [text.replace(" ", "").split(",") for text in match.groups()[1:]]
    axis = next((i for i, (n, m) in enumerate(zip(want, got)) if n != m), 0)
    axis = next((i for i, (n, m) in enumerate(zip(want, got)) if n.isdigit() and n != m), axis)
    kind = f"Shape mismatch for args[0].shape[{axis}] (expected same constant)" \
        if len(want) == len(got) else "Rank mismatch for args[0]"
    shapes = [f"({', '.join(dims)}{',' * (len(dims) == 1)})" for dims in (want, got)]
    return f"{kind}: expected {shapes[0]} and called with {shapes[1]}"


_SPECIFICATION = "Input shapes do not match the polymorphic shapes specification. "

COMPILED: dict[str, Words] = {
    r"expected (\S.*?) as axis (\d+) of argument (\d+) with (\S+) = (\d+), got (\d+)":
        _SPECIFICATION + r"Found inconsistency between dimension size args[\3].shape[\2] (= \6) "
        r"and the specification '\1' (= \5).",
    r"axis (\d+) of argument (\d+) is (\d+), which does not determine (\S+) of":
        _SPECIFICATION + r"Division had remainder when computing the value of '\4'.",
    r"expected one serialization of (\w+) under one name, got '(.*)' besides '(.*)' of \1":
        r"Duplicate serialization registration for type `<class '\1'>`. Previous registration was "
        r"with serialized_name `\3`.",
    r"expected one serialization of (\w+) under one name, got '(.*)' besides '(.*)' of (\w+)":
        r"Duplicate serialization registration for serialized_name `\2`. Previous registration was "
        r"for type `<class '\4'>`.",

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
    r"(\S+): expected a call on (.*), got one on (\w+)":
        r"Function '\1' was exported for platforms '('\2',)' but it is used on '('\3',)'.",
    r"^(\S+): expected (\w+)(\[.*\]), got (\w+)\3":
        r"Dtype mismatch for args[0]: expected \2 and called with \4",
    r"^(\S+): expected \w+\[(.*)\], got \w+\[(.*)\]\n.*export": _exported_shape,
}

RULES: dict[str, Words] = {
    r"expected the vmap rule (.*) of (.*) to return results like the function, (.*), got (.*)":
        r"structure of output value and output batched specification returned by custom vmap rule "
        r"(\1) do not match original structure: PyTreeDef(\4) vs PyTreeDef(\3).",
    r"custom_root: expected .* to return a solution that is like the unknowns, (.*); got (.*)":
        r"solve() output pytree structure must match initial_guess, got PyTreeDef(\2) and "
        r"PyTreeDef(\1).",
    r"custom_root: expected .* to return a result like its argument, (.*); got (.*)":
        r"f() output pytree structure must match initial_guess, got PyTreeDef(\2) and "
        r"PyTreeDef(\1).",
    r"custom_linear_solve: expected .* to return a result like its argument, (.*); got (.*)":
        r"matvec() output pytree structure must match b, got PyTreeDef(\2) and PyTreeDef(\1).",
    r"custom_linear_solve: expected .* to return a solution that is like the unknowns, (.*); "
    r"got (.*)":
        r"solve() output pytree structure must match b, got PyTreeDef(\2) and PyTreeDef(\1).",
    r"lax.custom_linear_solve: a transpose_solve":
        "transpose_solve required for backwards mode automatic differentiation of "
        "custom_linear_solve",
    r"expected rules for (.*), made with custom_jvp, got none":
        r"No JVP defined for custom_jvp function \1 using defjvp.",
    r"expected rules for (.*), made with custom_vjp, got none":
        r"No VJP defined for custom_vjp function \1 using defvjp.",
    r"expected rules for (.*), made with custom_vmap, got none":
        r"No batching rule defined for custom_vmap function \1 using def_vmap.",
    rf"expected the jvp rule {_RULE} of (.*) to return a pair.*, got ([^\n]*)":
        r"Custom JVP rule \1 for function \2 must produce a pair (list or tuple of length two) "
        r"representing primal and tangent outputs, but got \3.",
    rf"expected the jvp rule {_RULE} of (.*) to return tangents like the results, (.*), got (.*)":
        r"Custom JVP rule \1 for function \2 must produce primal and tangent outputs with equal "
        r"container (pytree) structures, but got PyTreeDef(\3) and PyTreeDef(\4) respectively.",
    rf"expected the jvp rule {_RULE} of (.*) to return tangent like the result, (.*), got (.*)":
        "Custom JVP rule must produce primal and tangent outputs with corresponding shapes and "
        r"dtypes. Expected \3 (tangent type of \3) but got \4.",
    rf"expected the jvp rule {_RULE} of (.*) to return result like the function, (.*), got (.*)":
        r"Custom JVP rule \1 for function \2 must produce a pair (list or tuple of length two) "
        "where the first element represents the primal output (equal in value to the output of "
        r"the custom_jvp-decorated function \2, and in particular of the same container/pytree "
        r"structure), but instead the JVP rule output's first element had \4, not \3.",
    rf"expected the fwd rule {_RULE} of (.*) to return a pair":
        r"Custom VJP fwd rule \1 for function \2 must produce a pair (list or tuple of length two) "
        "where the first element represents the primal output (equal to those of the custom_vjp-"
        r"decorated function \2) and the second element represents residuals.",
    rf"expected the fwd rule {_RULE} of (.*) to return results? like the function, (.*), got (.*)":
        r"Custom VJP fwd rule \1 for function \2 must produce a pair (list or tuple of length two) "
        r"where the first element represents the primal output, of type \3, but got \4. It must "
        "produce an output with the same container (pytree) structure, and shapes/dtypes.",
    rf"expected the bwd rule {_RULE} of (.*) to return cotangent\[(.*)\] like the argument, "
    rf"{_TYPE}, got {_TYPE}":
        lambda m: "Custom VJP bwd rule must produce an output with the same type as the args tuple "
        f"of the primal function, but at output[{m[3]}] the bwd rule produced an output of type "
        f"{m[5]} corresponding to an input of type {m[4]}{_difference(m[4], m[5])}",
    rf"expected the bwd rule {_RULE} of (.*) to return cotangent\[.*\] like the argument, "
    r"([^,]*), got ([^\n]*)":
        "Custom VJP bwd rule must produce an output with the same container (pytree) structure as "
        r"the args tuple of the primal function, but got bwd output structure PyTreeDef((\4,)) for "
        r"primal input structure PyTreeDef((\3,)).",
    rf"expected the \w+ rule {_RULE} of \S+ to take (\d+) arguments? by position, .*too many":
        lambda m: f"{m[1]}() takes {int(m[2]) - 1} positional argument{'s' * (m[2] != '2')} but "
        f"{m[2]} were given",
    r"(custom_\w+) of (.+): expected an argument (\w+), got none":
        _UNRESOLVED + r"missing a required argument: '\3'",
    r"(custom_\w+) of (.+): expected arguments for .*, and none for (\w+)":
        _UNRESOLVED + r"missing a required argument: '\3'",
    r"(custom_\w+) of (.+): expected arguments for .*, got ('\w+') by name":
        _UNRESOLVED + r"got an unexpected keyword argument \3",
    rf"expected the bwd rule {_RULE} of (.*) to return a tuple of (\d+).*, got (.*)":
        "Custom VJP bwd rule must produce an output with the same container (pytree) structure as "
        "the args tuple of the primal function, and in particular must produce a tuple of length "
        r"equal to the number of arguments to the primal function, but got \4 for \3.",
    rf"expected the vmap rule {_RULE} of (.*) to return out_batched like the result, (.*), "
    r"got (.*)":
        "structure of output value and output batching specification returned by custom vmap "
        r"rule (\1) do not match.\nOutput values: PyTreeDef(\3)\nBatching spec: PyTreeDef(\4)",
    rf"the abstract evaluation rule {_RULE} of the primitive (\w+) to return":
        r"\2.abstract_eval() method should return a tuple or a list iff \2.multiple_results.",
}

def _dataclass_fields(match: re.Match[str]) -> str:
    want, *got = [re.findall(r"'(\w+)'", part) for part in match.groups()]
    named = [name for part in got for name in part]
    missing, other = [n for n in want if n not in named], [n for n in named if n not in want]
    what = f"Missing fields: {{{', '.join(map(repr, missing))}}}. Add them to drop_fields to " \
        "suppress this error." if missing else \
        f"Unexpected fields: {{{', '.join(map(repr, other))}}}."
    return "data_fields and meta_fields must include all dataclass fields with ``init=True`` and " \
        f"only them. {what}"


MACHINERY: dict[str, Words] = {
    r"(debug_check|check): expected a bool scalar, got (.*)":
        r"\1 takes a scalar pred as argument, got \2",
    r"expected a step of graph, .*, or all; got '(.*)'": r"unknown dialect: \1",
    r"expected the fields of \w+, \((.*)\); got \((.*)\) and \((.*)\)": _dataclass_fields,
    r"jet: expected series of one length":
        "jet terms have inconsistent lengths for different arguments",
    r"jit: expected arguments that are static or donated, got both for (.*)":
        r"static_argnums and donate_argnums cannot intersect, got \1 in both.",
    r"ShapeDtypeStruct: expected a sharding, got (.*)":
        r"sharding should be an instance of `jax.sharding.Sharding`, `jax.sharding.PartitionSpec` "
        r"or `jax.experimental.layout.Format`. Got \1.",
    r"ShapeDtypeStruct: expected a dtype": "ShapeDtypeStruct: dtype must be specified.",
    r"(?s)equation \d+, (.*), reads (\w+), which is not bound before":
        r"Variable '\2' not defined\n\nin equation:\n\n\1",
    r"reads (\w+), which is not bound before": r"Variable '\1' not defined",
    r"binds (\w+), which is bound already": r"Variable '\1' already bound",
    r"(?s)equation \d+, (.*), binds (\w+) as (\S+), and the result is (\S+)":
        r"Value for variable '\2' inconsistently typed as \4 for let-binder of type \3\n\nin "
        r"equation:\n\n\1",
    r"has the param (\w+) of (\w+), a (\w+); expected (.*), got (.*)":
        lambda m: f"invalid {m[2]} param {m[1]} of type {m[3]}, "
        f"{'non-negative int' if m[4] == 'int' else m[4]} required: {m[5]}",
    r"set: expected a value that broadcasts to (.*), the shape of what is indexed; got (.*)":
        r"Invalid shape for `swap`. Ref shape: \1. Expected shape: \1. Value shape: \2.",
    r"expected a vmapped function not to write what differs between batch elements to a reference":
        "performing a set/swap operation with vmapped value on an unbatched array reference. Move "
        "the array reference to be an argument to the vmapped function?",
    r"expected a value of dtype (\w+), as the reference holds, got (\w+)":
        r"Invalid dtype for `swap`. Ref dtype: \1. Value dtype: \2.",
    r"check: expected a call within checkify, as the predicate is traced":
        "Cannot abstractly evaluate a checkify.check which was not functionalized. This probably "
        "means you tried to stage (jit/scan/pmap/...) a `check` without functionalizing it through "
        "`checkify.checkify`.",
    r"check: expected arrays as arguments of the message, got (\w+)":
        "Formatting arguments to checkify.check need to be PyTrees of arrays, but got a value of "
        r"type <class '\1'>.",
    r"print: expected a format string that names all arguments, got .*, which does not name (\d.*)":
        r"Unused positional arguments to `jax.debug.print`: [\1]",
    r"print: expected a format string that names all arguments, got .*, which does not name (.*)":
        lambda m: f"Unused keyword arguments to `jax.debug.print`: {m[1].split(', ')}",
    r"jet: expected an array as term (\d+) of argument (\d+), got":
        r"term \1 for argument \2 is not an array",
    r"expected compiler_options of XLA, which do nothing, got \[('\w+')":
        r"INVALID_ARGUMENT: No such compile option: \1",
    r"expected a comparison that the bounds decide, got (\S+) (\S+) (\S+) with":
        r"Symbolic dimension comparison '\1' \2 '\3' is inconclusive.",
    r"expected as many lengths as in None, got ('.*')":
        r"syntax error in symbolic shape \1: spec contains ... but no 'like' shape was given.",
    r"expected the index_map of a block (.*) to return (\d+) indices, got (\d+)":
        r"Index map function must return \2 values to match block_shape=\1. Currently returning "
        r"\3 values.",
    r"transpose: expected trees of one structure inside of (.*), got (.*)":
        r"Mismatch\nPyTreeDef(\2)\n != \nPyTreeDef(\1)",
    r"expected (?:a length such as .*|lengths between commas), got ('.*')":
        r"syntax error in symbolic shape \1",
    r"expected an integer, got the dimension (\S+), which is known at the call only":
        r"Symbolic dimension '\1' used in a context that requires a constant",
    r"expected a shape of integers, got (.*)":
        r"Shapes must be 1D sequences of concrete values of integer type, got \1.",
    r"expected (\d+) <= (\w+) <= (\d+), got (-?\d+) at axis":
        lambda m: "Input shapes do not match the symbolic shape constraint " + (
            f"{m[2]} >= {m[1]}. Expected '{m[2]} - {m[1]}'" if int(m[4]) < int(m[1]) else
            f"{m[2]} <= {m[3]}. Expected '{m[3]} - {m[2]}'") +
        " to be greater or equal to 0.",
    r"linear_call: expected the transpose \S+ to return cotangents like the operands":
        "transpose output pytree structure must match that of linear inputs, got output structure "
        "and input structure that differ",
    r"expected a kernel that reads its references only":
        "The kernel function in a pallas_call captures constants; you should pass them as inputs.",
    r"expected a kernel to return None, got (\w+)":
        r"The kernel function in a pallas_call should return None. It returns <class '\1'>.",
    r"expected blocks with (\d+) axes, like the array of shape (.*), got (.*)":
        r"Block shape must have the same number of dimensions as the array shape: "
        r"block shape \3, array shape \2.",
}
