"""Lines of programs, by the kind of value that they make.

    M  floats (3, 4)     V  floats (4,)     R  floats (3,)     S  a float
    I  ints (3,), 0 to 2     B  bools (3, 4)     C  bools (4,)     T  a dict of M and V

``{M}`` stands for a value of that kind, ``{num}``, ``{int}``, ``{row}``, ``{col}`` and ``{axis}``
for Python numbers, ``{out}`` for the name that a statement of several lines defines. The style is
that of JAX's documentation.
"""

from __future__ import annotations

# An expression of each kind that needs only an M.
FIRST = {
    "V": "{M}[0]",
    "R": "{M}[:, 1]",
    "S": "{M}.sum()",
    "I": "jnp.array([2, 0, 1])",
    "B": "({M} > {num})",
    "C": "({M}[1] > {num})",
    "T": "{'w': {M}, 'b': {V}}",
}

def _lines(text: str) -> tuple[str, ...]:
    return tuple(text.strip().splitlines())


def _blocks(text: str) -> tuple[str, ...]:
    return tuple(text.strip().split("\n\n"))


EXPRESSIONS: dict[str, tuple[str, ...]] = {k: _lines(text) for k, text in {
"M": r"""
{M} + {M}
{M} * {num}
{num} - {M}
{M} / 3
{M} ** 2
-{M} + {V}
{M} @ W
jnp.tanh({M})
jnp.sin({M} @ W + {V})
{M} * np.float32({num})
{M} + np.ones(4)
{M} * {B}
{M} - {M}.mean(axis=0)
{M} - {M}.max(axis=1, keepdims=True)
abs({M})
{M} % 1.5
{M} // 1
({M} + {R}[:, None])
jnp.maximum({M}, 0)
jnp.clip({M}, -1, {V})
jnp.round({M}, 2)
jnp.square({M}).T.reshape(3, 4)
{M}[np.array([2, 0, 1])]
{M}[{I}]
{M}[:, [3, 1, 0, 2]]
{M}[[0, 1, 1], :]
{M}[(2, 1, 0), ...]
{M}[:, ::-1]
{M}[::-1]
{M}[..., jnp.arange(4)]
{M}[jnp.arange(3)[:, None], [1, 0, 3, 2]]
{M}[None, :, [0, 1, 2, 3]][:, 0].T
{M}[[[0], [1], [2]], [0, 1, 2, 3]]
{M}[[True, True, True], :]
{M}[:, :, None][..., 0]
{M}[jnp.array([0, 1, {int}])]
{M}[True][0]
{M}[[jnp.argmax({R}), 0, 1], :]
{M}[[i for i in range(3)], :]
jnp.where({B}, {M}, {num})
jnp.where({M} > 0, {M}, {V})
jnp.where({C}, {M}, 0)
jnp.take({M}, {I}, axis=0)
{M}[[0, 1, 2], ...]
jnp.take_along_axis({M}, jnp.argsort({M}, axis=1), axis=1)
jnp.sort({M}, axis={axis})
{M}.at[0].set({V})
{M}.at[0, [1, 2]].set({num})
{M}.at[:, [0, 2]].add(1)
{M}.at[{I}].add({V})
{M}.at[[0, 1], [1, 2]].multiply({num})
{M}.at[1, 1].set({S})
{M}.at[{row}, {col}].add({S})
{M}.at[:, -1].set({R})
{M}.at[1:, ::2].min(0.5)
{M}.at[jnp.arange(3), {I}].set({R})
{M}.at[..., 0].apply(jnp.sin)
{M}.at[[2, 2, 0], :].add({M})
{M}.at[1].set([1, 2, 3, {num}])
{M}.at[np.array([0, 2])].divide(2)
lax.dynamic_update_slice({M}, {M}[:1, :2], (1, {int}))
jnp.array([{V}, {V} * 2, {V}])
jnp.stack([{V}, {V}, jnp.ones(4)])
jnp.array([[{S}, 1, 2, {num}]] * 3)
jnp.concatenate([{M}[:1], {M}[1:]])
jnp.asarray([[float(i * j) for j in range(4)] for i in range(3)]) + {S}
jnp.vstack([{V}] * 3)
jnp.stack([{R}] * 4, axis=1)
jnp.array([{V} for _ in range(3)])
jnp.column_stack([{R}, {R}, {R}, {R}])
jnp.outer({R}, {V})
jnp.tile({V}, (3, 1))
jnp.broadcast_to({S}, (3, 4))
jnp.full((3, 4), {S})
jnp.zeros_like({M}) + {V}
jnp.array({M})
jnp.eye(3, 4) * {S}
jnp.array([{R}, {R}, {R}, {R}]).T
jnp.pad({M}[:2, :3], ((0, 1), (1, 0)))
jnp.repeat({V}[None], 3, axis=0)
jnp.squeeze(jnp.expand_dims({M}, {axis}))
jnp.roll({M}, {int}, axis={axis})
jax.tree.map(lambda a: a * {num}, {T})['w']
jax.tree.map(jnp.add, {T}, {T})['w']
jax.vmap(lambda r: r * {num} + {V})({M})
jax.vmap(jnp.dot, (0, None))({M}, W)
jax.vmap(lambda a, s: a * s)({M}, {R})
functools.reduce(lambda a, b: a + b, [{M}, {M}])
sum([{M}, {M}, {num}])
(lambda a, /, b=2, *, c: a * b + c)({M}, c={S})
jax.vmap(lambda c: c / (1 + jnp.abs(c).sum()), in_axes=1, out_axes=1)({M})
lax.map(lambda r: r - r.mean(), {M})
lax.fori_loop(0, 3, lambda i, c: c * {num} + i, {M})
lax.fori_loop(0, 2, lambda i, c: c.at[i].set({V}), {M})
lax.scan(lambda c, r: (c + r, c * r), {V}, {M})[1]
lax.cumsum({M}, axis={axis})
lax.cond({S} > 0, lambda a: a + 1, lambda a: a * {num}, {M})
nn.relu({M})
lax.select({B}, {M}, {M} * 2)
nn.softmax({M}, axis={axis})
nn.one_hot({I}, 4) * {S}
lax.stop_gradient({M}) * {M}
jax.lax.switch({int}, [jnp.sin, jnp.cos, lambda a: a], {M})
nn.standardize({M})
{M} + random.normal(key, (3, 4))
jnp.einsum('ij,jk->ik', {M}, W)
random.permutation(key, {M})
{M} * random.bernoulli(random.fold_in(key, {int}), .5, (3, 4))
jax.checkpoint(lambda a: jnp.sin(a) * {num})({M})
jax.jit(lambda a, n: a * n, static_argnums=1)({M}, {int})
{M} + jax.grad(lambda a: (a ** 3).sum())({M})
jax.jacfwd(lambda s: {M} * jnp.sin(s))({S})
({M} - {M}.mean()) / ({M}.std() + 1e-2)
""",
"V": r"""
{V} * {num}
{V} + {V}
{M}[{row}]
{M}[[0, 1, 2, 0], [1, 2, 3, 0]]
{V}[::-1]
{M}.sum(0)
{M}[-1, :]
{R} @ {M}
{V} / jnp.linalg.norm({V})
W @ {V}
{M}.mean(0)
{V}.at[[0, 2]].set({num})
{V}.at[{col}].add(1)
{V}.at[1:3].multiply({V}[:2])
{V}[jnp.array([3, 0, 1, 2])]
{V}[[3, 0, 1, 2],]
{V}[jnp.argsort({V})]
jnp.sort({V})
jnp.array([{S}, 1., 2, {S}])
jnp.array([{S}, {S}, {num}, True])
jnp.arange(4) * {S}
jnp.stack([{S}, {S}, {S}, {S}])
jnp.append({R}, {S})
jnp.concatenate([{R}, {R}[:1]])
jnp.where({C}, {V}, {num})
{V}.cumsum()
jnp.diff({V}, prepend={num})
jnp.exp(-{V} ** 2)
jnp.interp({V}, jnp.arange(3.), {R})
jnp.array([a * 2 for a in {V}])
jnp.linspace(0, {S}, 4)
jnp.select([{V} > 1, {V} > 0], [{V}, {num} * {V}], 0)
jnp.convolve({V}, jnp.ones(3), 'same')
jnp.piecewise({V}, [{V} < 0, {V} >= 0], [lambda a: -a, lambda a: a * 2])
jnp.ravel({M})[:4]
jnp.asarray([*{V}[:2], {S}, {num}])
{T}['b']
jax.nn.softplus({V})
{M}.T @ {R}
jnp.zeros(4).at[{I}].add({R})
jax.ops.segment_sum({R}, {I}, 4)
{V}.astype('float16')
{V}.astype(int) * {S}
jnp.float32({V})
{V}.astype(jnp.bfloat16) + {V}
jax.vmap(lambda i: {M}[{row}, i])(jnp.arange(4))
lax.dynamic_slice({M}, ({int}, 0), (1, 4))[0]
lax.scan(lambda c, a: (c * {num} + a, c), {S}, {V})[1]
lax.dynamic_index_in_dim({M}, {int}, 0, False)
jax.grad(lambda a: jnp.sum(jnp.tanh(a) * {V}))({V})
jax.jvp(jnp.sin, ({V},), ({V},))[1]
random.uniform(key, (4,)) * {V}
random.choice(key, {V}, (4,))
jnp.vectorize(lambda a: a * {num})({V})
jnp.max({M}, axis=0, initial={num})
{M}.min(axis=0, where={B}, initial=9)
jnp.bincount({I}, length=4) * {S}
""",
"R": r"""
{R} + {num}
{M}[:, {col}]
{M}.sum(axis=1)
{M} @ {V}
{M}[jnp.arange(3), {I}]
{M}[[0, 1, 2], [1, 2, 3]]
{M}.max(1)
jnp.linalg.norm({M}, axis=1)
{M}[range(3), 0] if False else {R}
jnp.array([{S}, {S} + 1, 3])
{V}[1:]
{V}[{I}]
{R}[{I}] * {I}
jnp.diag({M})
jnp.cos({R})
jnp.array([r @ r for r in {M}])
jax.vmap(lambda r: r.mean())({M})
jnp.array([len({M}), {M}.ndim, {S}])
jnp.mean({M} ** 2, axis=-1)
nn.logsumexp({M}, axis=1)
{M}[:, [{col}]][:, 0]
{R}.at[{row}].set({S})
jnp.argmax({M}, axis=1) * {R}
jnp.count_nonzero({B}, axis=1) + {R}
jnp.asarray(({S}, {num}, {S}))
""",
"S": r"""
{S} * {num}
{S} + {S}
{M}.sum()
jnp.mean({M})
{V} @ {V}
{M}[{row}, {col}]
{V}[{col}]
jnp.sum({M} ** 2)
jnp.max({V})
{M}[0][1]
jnp.sum({M}, where={B})
len({M}) * {S}
jnp.prod({R})
{M}.shape[0] + {S}
{M}.size * {S}
jnp.where({S} > 0, {S}, {num})
jnp.dot({R}, {R})
abs({S})
sum(jax.tree.leaves(jax.tree.map(jnp.sum, {T})))
jax.tree.reduce(lambda a, b: a + b.sum(), {T}, 0.)
lax.while_loop(lambda c: c < 5, lambda c: c + 1.5, {S})
lax.fori_loop(0, 4, lambda i, c: c + {V}[i], {S})
lax.scan(lambda c, a: (c + a, None), 0., {V})[0]
lax.cond({S} > {num}, lambda: {S}, lambda: {S} * 2)
jnp.linalg.norm({V})
max({V}.shape) * {S}
jnp.trace({M} @ {M}.T)
{V}.dot({V}) ** 0.5
+{S}
jax.grad(lambda s: jnp.sum({V} * s ** 2))({S})
jax.value_and_grad(jnp.sin)({S})[0]
jnp.var({V}, ddof=1)
jnp.float32({num}) * {S}
jnp.nanmean({M})
jnp.median({V})
jnp.quantile({V}, 0.3)
1 / (1 + {S} ** 2)
functools.partial(jnp.add, {S})({num})
(lambda *a: sum(a))({S}, {S}, 2)
jnp.any({B}) * {S}
np.pi * {S}
jnp.sin({S}) if {M}.ndim == 2 else {S}
jnp.minimum({S}, {num})
jnp.hypot({S}, {S})
nn.sigmoid({S})
jax.hessian(lambda a: jnp.sum(a ** 3))({V}).sum()
jnp.asarray({num}) * {S}
jnp.array({num}) + {S}
""",
"I": r"""
jnp.array([0, 2, {int}])
jnp.argmax({M}, axis=1) % 3
jnp.argsort({R})
{I}[::-1]
(jnp.arange(3) + {int}) % 3
jnp.where({R} > 0, 2, {I})
{I}[{I}]
jnp.clip({M}[:, 0].astype(int), 0, 2)
({R} > {num}).astype(jnp.int32)
jnp.searchsorted(jnp.array([0., 1.]), {R})
random.randint(key, (3,), 0, 3)
jnp.asarray([2, 1, 0], dtype='uint8')
jnp.cumsum({R} > 0) % 3
jnp.minimum({I} + 1, 2)
np.array([1, 0, 2])
lax.iota('int32', 3)
jnp.sign({R}).astype('int8') + 1
""",
"B": r"""
({M} > {num})
({M} < {V})
~{B}
{B} & ({M} > 0)
{B} | {C}
({M} == {M}.max())
jnp.isfinite({M})
jnp.logical_and({B}, {M})
jnp.array([[True, False] * 2] * 3)
({I}[:, None] == jnp.arange(4))
({M} >= {M}.mean(0))
jnp.tril(jnp.ones((3, 4), bool))
jnp.isclose({M}, 0)
{B} ^ {B}
random.bernoulli(key, 0.5, (3, 4))
""",
"C": r"""
({V} > {num})
({V} <= {V}.mean())
~{C}
jnp.array([True, False, True, True])
{B}[{row}]
{B}.any(axis=0)
{B}.all(0) | {C}
(jnp.arange(4) < {int})
jnp.isin(jnp.arange(4), {I})
np.array([True, True, False, False])
""",
"T": r"""
{'w': {M}, 'b': {V}}
jax.tree.map(jnp.sin, {T})
dict({T}, b={V})
{**{T}, 'w': {M}}
jax.tree.map(lambda a, b: a - {num} * b, {T}, {T})
{k: v * {num} for k, v in {T}.items()}
jax.tree.unflatten(jax.tree.structure({T}), jax.tree.leaves({T}))
dict(w={M}, b={M}[0])
jax.tree_util.tree_map_with_path(lambda p, a: a * len(p), {T})
jax.tree.map(jnp.zeros_like, {T})
jax.grad(lambda t: sum(jnp.sum(a ** 2) for a in t.values()))({T})
""",
}.items()}

BLOCKS: dict[str, tuple[str, ...]] = {k: _blocks(text) for k, text in {
"M": r"""
{out} = {M}
for i in range({int} + 1):
    {out} = {out} * {num} + i

{out} = {M}
for i, row in enumerate({out}):
    {out} = {out}.at[i].set(row[::-1] * i)

rows = []
for r, s in zip({M}, {R}):
    rows.append(jnp.tanh(r) * s)
{out} = jnp.stack(rows)

{out} = {M}
{out} += {V}
{out} *= {num}

def step(carry, r, *, gain={num}):
    carry = carry + gain * r
    return carry, carry
_, {out} = lax.scan(step, {V}, {M})

def body(i, state):
    a, s = state
    return a.at[i].add(s), s + a[i].sum() * 0.1
{out}, _ = lax.fori_loop(0, 3, body, ({M}, {S}))

{out} = {M}
if {out}.shape[0] > 2 and {out}.ndim == 2:
    {out} = {out} - {num}

a, b = jnp.split({M}, 2, axis=1)
{out} = jnp.concatenate([b, a], axis=-1)

keys = random.split(key, 3)
{out} = jnp.stack([random.uniform(k, (4,)) for k in keys]) + {M}

w, b = {T}['w'], {T}['b']
{out} = jnp.dot(w, W) + b

jax.debug.print('{} {a}', {S}, a={V})
{out} = {M} * 1

with jax.named_scope('inner'):
    {out} = jnp.cos({M})

{out} = {M}
assert {out}.shape == (3, 4)

{out} = {M}[{B}].sum() * {M}

{out} = {M}.at[{B}].set({num})

{out} = {M} if {S} > 0 else {M} * 2
""",
"V": r"""
{out} = {V}
for layer in [jnp.sin, jnp.cos, lambda a: a * {num}]:
    {out} = layer({out})

head, *tail = {M}
{out} = head + sum(tail)

{out} = {V}
while {out}.ndim < 3:
    {out} = {out}[None]
{out} = {out}[0, 0]

def deep(n, a):
    return a if n == 0 else deep(n - 1, jnp.sin(a))
{out} = deep({int}, {V})

{out} = {V}[{C}].sum() + {V}

{out} = {V}.at[{C}].add({num})

picked = jnp.nonzero({C})[0]
{out} = {V}.at[picked].multiply(2)

i, = jnp.nonzero({C}, size=2, fill_value=3)
{out} = {V}.at[i].set({num})
""",
"R": r"""
values = [{S}, {S}]
values.append({num})
{out} = jnp.array(values)

x0, x1, x2, _ = {V}
{out} = jnp.array([x0, x1 * 2, x2])

{out} = jnp.zeros(3)
for i in range(3):
    {out} = {out}.at[i].set({M}[i, i])
""",
"S": r"""
{out} = 0.
for name, leaf in {T}.items():
    {out} = {out} + leaf.sum() * len(name)

{out} = {S}
for v in {V}:
    {out} = {out} + v ** 2

value, pull = jax.vjp(lambda a: jnp.sum(a ** 2), {V})
{out} = value + pull(jnp.ones_like(value))[0].sum()

value, {out} = jax.jvp(jnp.tanh, ({S},), (jnp.ones_like({S}),))

total = {S}
if total > 0:
    {out} = total * 2
else:
    {out} = -total

n = int({M}.shape[1] / 2)
{out} = {M}[:n, n:].sum()

{out} = {S}
for i, (r, c) in enumerate(zip([0, 1, 2], (3, 2, 1))):
    {out} += {M}[r, c] * i
""",
"I": r"""
order = jnp.argsort({R})
{out} = jnp.zeros(3, int).at[order].set(jnp.arange(3))
""",
"B": r"""
{out} = jnp.zeros((3, 4), bool)
{out} = {out}.at[{row}, {col}].set(True)
""",
"C": r"""
{out} = jnp.ones(4, dtype=bool)
{out} = {out}.at[[0, {int}]].set(False)
""",
"T": r"""
{out} = {T}
for k in list({out}):
    {out} = {**{out}, k: {out}[k] + {num}}

leaves, treedef = jax.tree.flatten({T})
{out} = jax.tree.unflatten(treedef, [a * 2 for a in leaves])
""",
}.items()}
