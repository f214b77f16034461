"""What to write in place of names of PyTorch, NumPy, Numba and JAX that fnx does not have.

``SYNONYMS`` are for modules and for misspelt names: the name that is meant. The other tables are
for what a class does not have, with a sentence that says what to write; ``x`` is the array, ``f``
the function under a transform.

>>> CURES_OF_ARRAYS["unsqueeze"]
'write fnx.numpy.expand_dims(x, axis)'
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

SYNONYMS: Mapping[str, str] = {
    "avg": "average", "backward": "fnx.grad", "bmm": "matmul", "cat": "concatenate",
    "clamp": "clip", "contiguous": "copy", "cpu": "fnx.device_put",
    "detach": "fnx.lax.stop_gradient", "determinant": "det", "detect_anomaly": "fnx.debug_nans",
    "dim": "ndim", "div": "divide", "expand": "fnx.numpy.broadcast_to", "flatten": "ravel",
    "gather": "fnx.numpy.take_along_axis", "gaussian": "normal", "isnull": "isnan",
    "load_checkpoint": "fnx.load", "log_softmax": "fnx.nn.log_softmax",
    "logsumexp": "fnx.nn.logsumexp", "manual_seed": "key", "masked_fill": "fnx.numpy.where",
    "mm": "matmul", "mul": "multiply", "norm": "fnx.numpy.linalg.norm", "numel": "size",
    "numpy": "numpy.asarray(x)", "one_hot": "fnx.nn.one_hot", "permute": "transpose",
    "permutation": "fnx.random.permutation", "rand": "fnx.random.uniform",
    "randint": "fnx.random.randint", "randn": "fnx.random.normal",
    "random_normal": "fnx.random.normal", "relu": "fnx.nn.relu", "save_checkpoint": "fnx.save",
    "seed": "key", "sigmoid": "fnx.nn.sigmoid", "shuffle": "fnx.random.permutation",
    "softmax": "fnx.nn.softmax",
    "sub": "subtract", "to": "fnx.device_put", "topk": "fnx.lax.top_k",
    "tree_flatten": "fnx.tree.flatten", "tree_leaves": "fnx.tree.leaves",
    "tree_map": "fnx.tree.map", "tree_multimap": "fnx.tree.map", "uniform": "fnx.random.uniform",
    "unsqueeze": "fnx.numpy.expand_dims"}


def _rows(text: str) -> dict[str, str]:
    """Return name -> sentence of lines ``name name ...: sentence``."""
    lines = [line.strip().partition(": ") for line in text.strip().splitlines()]
    return {name: sentence for names, _, sentence in lines for name in names.split()}


# Functions of fnx.numpy that are methods elsewhere; the second list takes nothing but x.
_FUNCTIONS = """
    add allclose amax amin append arctan2 argwhere array_split bitwise_and bitwise_or bitwise_xor
    broadcast_to concatenate count_nonzero cross deg2rad diag diff divide einsum equal expand_dims
    fabs flip fliplr flipud fmod greater greater_equal hypot inner isclose isreal less less_equal
    logaddexp logical_and logical_not logical_or logical_xor maximum median minimum moveaxis
    multiply nan_to_num nanmean nansum not_equal outer power quantile rad2deg remainder roll rot90
    sinc split stack subtract tensordot tile tril triu true_divide unstack vdot where"""

_OF_X_ALONE = """
    abs absolute arccos arcsin arctan ceil cos cosh exp exp2 expm1 floor isfinite isinf isnan
    log log10 log1p log2 negative ones_like reciprocal sign sin sinh sqrt square tan tanh trunc
    unique zeros_like"""

CURES_OF_ARRAYS: Mapping[str, str] = {
    **{name: f"write fnx.numpy.{name}(x, ...)" for name in _FUNCTIONS.split()},
    **{name: f"write fnx.numpy.{name}(x)" for name in _OF_X_ALONE.split()},
    "append": "an Array is immutable: write x = fnx.numpy.append(x, value); in a loop append to "
              "a list, and make an array of it at the end",
    **_rows("""
    unsqueeze: write fnx.numpy.expand_dims(x, axis)
    numpy to_numpy to_py asnumpy get: write numpy.asarray(x)
    to: write fnx.device_put(x, device) for a device, x.astype(dtype) for a dtype
    cuda: write fnx.device_put(x, fnx.devices("cuda")[0])
    cpu: write fnx.device_put(x, fnx.devices("cpu")[0]), or numpy.asarray(x) for a NumPy array
    is_cuda get_device: read x.device
    backward: derivatives are of functions, not of values: write fnx.grad(loss)(params)
    grad grad_fn is_leaf retain_grad: write fnx.grad(loss)(params), which returns the derivatives
    requires_grad requires_grad_: every array can be differentiated: write fnx.grad(loss)(params)
    zero_grad: fnx.grad(loss)(params) returns derivatives, which are never summed: leave this out
    detach detach_ stop_gradient data: write fnx.lax.stop_gradient(x)
    permute: write x.transpose(0, 2, 1), with the axes in their new order
    t: write x.T
    adjoint: write x.conj().mT
    numel element_size: read x.size and x.itemsize
    dim ndimension: read x.ndim
    type dtype_: read x.dtype; write x.astype(dtype) to convert
    float: write x.astype("float32")
    double: write x.astype("float64")
    half: write x.astype("float16")
    bfloat16: write x.astype("bfloat16")
    int: write x.astype("int32")
    long: write x.astype("int64")
    bool: write x.astype(bool)
    type_as: write x.astype(other.dtype)
    contiguous: every array is contiguous: leave this out
    is_contiguous stride strides flags: every array is contiguous, in row-major order
    expand expand_as: write fnx.numpy.broadcast_to(x, shape)
    view_as reshape_as: write x.reshape(other.shape)
    unflatten: write x.reshape(shape)
    repeat_interleave: write fnx.numpy.repeat(x, repeats, axis)
    gather: write fnx.numpy.take_along_axis(x, index, axis)
    index_select: write fnx.numpy.take(x, index, axis)
    select narrow: write x[..., i] or x[start:stop], or fnx.lax.dynamic_slice_in_dim if start \
is traced
    scatter scatter_ index_copy_ index_put_ put itemset setitem: an Array is immutable: write \
x = x.at[index].set(value)
    scatter_add scatter_add_ index_add index_add_: write x = x.at[index].add(value)
    add_ sub_ mul_ div_: an Array is immutable: write x = x + y (or -, *, /)
    zero_ fill fill_: an Array is immutable: write x = fnx.numpy.full_like(x, value)
    copy_: an Array is immutable: write x = y
    clamp clamp_ clip_: write x = x.clip(low, high)
    masked_fill masked_fill_: write fnx.numpy.where(mask, value, x)
    masked_select: write x[mask], outside of jit; in jit write fnx.numpy.where(mask, x, 0)
    mm bmm: write x @ y
    mul: write x * y
    sub: write x - y
    div: write x / y
    pow: write x ** y
    neg: write -x
    rsqrt: write fnx.lax.rsqrt(x)
    softmax: write fnx.nn.softmax(x, axis)
    log_softmax: write fnx.nn.log_softmax(x, axis)
    logsumexp: write fnx.nn.logsumexp(x, axis)
    relu: write fnx.nn.relu(x)
    relu_: write x = fnx.nn.relu(x)
    sigmoid: write fnx.nn.sigmoid(x)
    gelu: write fnx.nn.gelu(x)
    norm: write fnx.numpy.linalg.norm(x)
    inverse inv: write fnx.numpy.linalg.inv(x)
    det: write fnx.numpy.linalg.det(x)
    topk: write fnx.lax.top_k(x, k)
    chunk: write fnx.numpy.array_split(x, n, axis)
    unbind: write fnx.numpy.unstack(x, axis=axis)
    new_zeros: write fnx.numpy.zeros(shape, x.dtype)
    new_ones: write fnx.numpy.ones(shape, x.dtype)
    new_full new_tensor: write fnx.numpy.full(shape, value, x.dtype)
    uniform_ normal_ random_ bernoulli_: write fnx.random.normal(fnx.random.key(seed), x.shape)
    extend insert: an Array is immutable: write x = fnx.numpy.concatenate([x, y])
    pop remove: an Array is immutable: write x = x[:-1], or fnx.numpy.delete(x, index)
    resize resize_: an Array is immutable: write x = fnx.numpy.resize(x, shape)
    index count: write fnx.numpy.argmax(x == value), or fnx.numpy.sum(x == value)
    map apply_: write fnx.vmap(f)(x)
    tofile dump dumps: write fnx.save(path, x)
    setflags: arrays cannot be made writable: an Array is immutable
    """)}

CURES_OF_FUNCTIONS: Mapping[str, str] = _rows("""
    show print text lowering ir: write f.lower(x).show(), with the arguments of a call
    view page: write f.lower(x).view(), with the arguments of a call
    draw plot graph: write f.lower(x).draw(), with the arguments of a call
    roofline cost_analysis: write f.lower(x).roofline(), with the arguments of a call
    llvm inspect_llvm: write print(f.lower(x).llvm()), with the arguments of a call
    assembly asm inspect_asm: write print(f.lower(x).assembly()), with the arguments of a call
    as_text compiler_ir: write f.lower(x).as_text(), with the arguments of a call
    compile warmup: write f.lower(x).compile(), with the arguments of a call; the first call of \
a jitted function compiles it, too
    profile benchmark timeit time: write print(fnx.profile(f)(x))
    step debug: write fnx.debug.step(f)(x)
    grad gradient backward: write fnx.grad(f)(x)
    value_and_grad: write fnx.value_and_grad(f)(x)
    vmap map batch: write fnx.vmap(f)(x)
    jit: write fnx.jit(f)(x)
    jvp: write fnx.jvp(f, (x,), (tangent,))
    vjp: write fnx.vjp(f, x)
    jaxpr make_jaxpr: write fnx.make_jaxpr(f)(x)
    export save serialize: write fnx.export(f, x, to="fnx")
    py_func fun func fn: read f.__wrapped__
    to cuda cpu: arrays have devices, and functions run on those of their arguments: write \
f(fnx.device_put(x, device))
    parameters state_dict train zero_grad: a function has no parameters: pass them as an \
argument, f(params, x)
    """)

# Methods of arrays that a value or a reference in a kernel does not have.
_REDUCTIONS = "sum prod max min any all"
_KERNEL_FUNCTIONS = "abs ceil cos cosh exp exp2 expm1 floor log log1p sin sinh sqrt tan tanh"
CURES_OF_KERNEL_VALUES: Mapping[str, str] = {
    **{name: f"write k.{name}(value, over=i)" for name in _REDUCTIONS.split()},
    **{name: f"write k.{name}(value)" for name in _KERNEL_FUNCTIONS.split()},
    **_rows("""
    mean: write k.sum(value, over=i) / n, with n the length of i
    shape size ndim: a value is one number; read x.shape of an argument of the kernel
    astype to float int: write k.cast(value, dtype)
    item: a value is a number only when the kernel runs: use it as it is
    at: write o[i] = value, or o.combine("add", i, value)
    """)}

CURES_OF_REFERENCES: Mapping[str, str] = {
    **{name: f"write k.{name}(x[i], over=i), with i = k.range(x.shape[0])"
       for name in _REDUCTIONS.split()},
    **_rows("""
    mean: write k.sum(x[i], over=i) / x.shape[0], with i = k.range(x.shape[0])
    size: write math.prod(x.shape)
    T: write x[j, i]
    astype: write k.cast(x[i], dtype)
    at: write o[i] = value, or o.combine("add", i, value)
    reshape ravel: index it in its own shape: x[i // n, i % n]
    """)}

CURES_OF_MODULES: Mapping[str, str] = _rows("""
    Linear Dense Embedding LayerNorm BatchNorm Conv Conv1d Conv2d Sequential Module LSTM GRU: \
fnx has functions and no layers: write x @ w + b, or use those of flax or equinox \
(docs/guide/training.md)
    Dropout dropout: write fnx.numpy.where(fnx.random.bernoulli(key, 0.9, x.shape), x / 0.9, 0)
    optim optimizers Adam SGD AdamW sgd adam adamw: use optax (docs/guide/training.md), or write \
fnx.tree.map(lambda w, g: w - rate * g, params, gradients)
    cross_entropy CrossEntropyLoss nll_loss: write -fnx.numpy.mean(fnx.numpy.take_along_axis(\
fnx.nn.log_softmax(logits), labels[:, None], 1))
    mse_loss MSELoss: write fnx.numpy.mean((y - target) ** 2)
    l1_loss L1Loss: write fnx.numpy.mean(fnx.numpy.abs(y - target))
    functional: read fnx.nn
    argmax argmin: write fnx.numpy.argmax(x, axis); in a kernel, with top = k.max(x[i, c], \
over=c), k.min(k.where(x[i, c] == top, k.cast(c, "int32"), n), over=c)
    array tensor as_tensor from_numpy asnumpy: write fnx.numpy.asarray(data)
    Tensor FloatTensor: the class is fnx.Array; write fnx.numpy.asarray(data) to make one
    no_grad inference_mode set_grad_enabled enable_grad: nothing is recorded outside of fnx.grad; \
in it write fnx.lax.stop_gradient(x)
    autograd: write fnx.grad(loss)(params)
    random: write fnx.random.normal(fnx.random.key(seed), shape)
    manual_seed: write key = fnx.random.key(seed), and pass it, or what fnx.random.split gives
    device get_default_device: write fnx.devices("cpu")[0]; fnx.config.device = "cuda" changes \
the default
    cuda is_available: write fnx.devices("cuda"), or fnx.config.device = "cuda"
    numpy.view: write x.reshape(shape), or x.view(dtype) for the same bits
    kernel.mean kernel.average: write k.sum(value, over=i) / n, with n the length of i
    kernel.dot kernel.matmul: write k.sum(x[m, i] * w[i, n], over=i)
    kernel.relu: write k.maximum(value, 0)
    kernel.round: write k.rint(value), which rounds halves to even, as NumPy's round
    kernel.astype: write k.cast(value, dtype)
    kernel.gelu kernel.silu kernel.softplus kernel.var kernel.std: write it out in operators and \
functions of fnx.kernel, which dir(fnx.kernel) lists
    kernel.atomic_add kernel.atomic_max kernel.atomic_min: write o.combine("add", i, value); "max" \
and "min" are others
    kernel.shared kernel.syncthreads kernel.sync kernel.barrier kernel.thread_id kernel.block_id: \
iterations have no threads of yours: write i = k.range(n), with schedule=[k.stage(...), ...]
    kernel.arange kernel.program_id: write i = k.range(n)
    kernel.load: write x[i], or x.load(i, valid=condition)
    kernel.store: write o[i] = value, or o.store(i, value, valid=condition)
    kernel.zeros kernel.full kernel.empty: elements that nothing writes are 0; a running value is \
the first value of k.loop(n, step, first)
    kernel.cond: write k.where(condition, a, b), or k.when(condition, then, otherwise)
    kernel.fori_loop kernel.while_loop kernel.scan: write k.loop(n, step, *first), with until= for \
a condition that ends it
    show view: write fnx.jit(f).lower(x).show()
    compile njit: write fnx.jit(f)
    prange: write fnx.vmap(f)(x), or fnx.lax.fori_loop(0, n, body, start)
    debug_nans jax_debug_nans: write with fnx.debug_nans():, or set fnx.config.check = "nan"
    debug_infs jax_debug_infs: write with fnx.debug_infs():, or set fnx.config.check = "inf"
    """)


# ---- similar names

LIKE = 0.5  # names that are more similar are suggested
_EDIT_WEIGHT = 1.4  # letters that an edit counts: "foo" is not like "floor", "vampp" is like "vmap"
_SWAP_COST = 0.7  # of two neighbouring letters that change places, in edits


# of PyTorch -> of NumPy
_KEYWORDS: Mapping[str, str] = {"dim": "axis", "dims": "axis", "input": "x", "other": "y"}


def keyword_suggestion(keyword: str, keywords: Iterable[str]) -> str:
    """Suggest the keyword that is meant, or "".

    >>> keyword_suggestion("dim", ["a", "axis"]), keyword_suggestion("axs", ["a", "axis"])
    ("did you mean 'axis'?", "did you mean 'axis'?")
    """
    meant = _KEYWORDS.get(keyword)
    return f"did you mean {meant!r}?" if meant and meant in keywords else \
        suggestion(keyword, keywords)


def cure_in_module(path: str, known: Sequence[str], root: str = "fnx.") -> str:
    """Say what to write in place of a name that a module does not have, or "".

    Args:
        path: the name, after the last word of its module's.
        known: the names that the module has.
        root: what the names of fnx's modules begin with in the user's code.

    >>> cure_in_module("numpy.sofmax", ["fmax"])
    "did you mean 'fnx.nn.softmax'?"
    """
    name = path.rpartition(".")[2]
    return CURES_OF_MODULES.get(path) or _synonym(name, name, known, root) or \
        CURES_OF_MODULES.get(name) or \
        _synonym(most_similar([*known, *SYNONYMS], name), name, known, root) or \
        suggestion(name, known)


def _synonym(word: str, name: str, known: Sequence[str], root: str) -> str:
    """Suggest what a word stands for, if it is like a name; else ""."""
    meant = SYNONYMS.get(word, "") if word not in known else ""
    short = meant.rpartition(".")[2]
    meant = short if short in known else meant.replace("fnx.", root)
    there = meant in known or "." in meant
    return f"did you mean {meant!r}?" if there and similarity(word, name) > LIKE else ""


def suggestion(name: str, names: Iterable[str]) -> str:
    """Suggest the most similar name, or "".

    >>> suggestion("axs", ["dtype", "axis"]), suggestion("q", ["axis"])
    ("did you mean 'axis'?", '')
    """
    best = most_similar(names, name)
    return f"did you mean {best!r}?" if best and similarity(best, name) > LIKE else ""


def most_similar(names: Iterable[str], name: str) -> str:
    """Return the most similar of some names, the longest of several; "" if there are none."""
    return max(names, key=lambda other: (similarity(other, name), len(other)), default="")


def similarity(a: str, b: str) -> float:
    """Return how similar two words are, from 0 to 1, by their letter pairs or by edits."""
    a, b = a.lower(), b.lower()
    edits = _EDIT_WEIGHT * _edit_distance(a, b) / max(len(a), len(b), 1)
    return max(_shared_pairs(a, b), 1 - edits)


def _shared_pairs(a: str, b: str) -> float:
    """Return the fraction of letter pairs that two words share (the Dice coefficient)."""
    pairs_a, pairs_b = ({left + right for left, right in zip(f"<{x}", f"{x}>")} for x in (a, b))
    return 2 * len(pairs_a & pairs_b) / (len(pairs_a) + len(pairs_b))


def _edit_distance(a: str, b: str) -> float:
    """Return the least cost of insertions, deletions, replacements and swaps of neighbours.

    >>> _edit_distance("gard", "grad"), _edit_distance("axs", "axis")
    (0.7, 1.0)
    """
    before, row = [0.0] * (len(b) + 1), [float(j) for j in range(len(b) + 1)]
    for i, left in enumerate(a):
        before, above, row = row, before, [i + 1.0]
        for j, right in enumerate(b):
            cost = min(before[j] + (left != right), before[j + 1] + 1, row[j] + 1)
            if i and j and left != right and a[i - 1] == right and b[j - 1] == left:
                cost = min(cost, above[j - 1] + _SWAP_COST)
            row.append(cost)
    return row[-1]
