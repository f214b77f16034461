"""Styles of functions: closures, classes, rules, decorators; and of calls.

In a definition ``{f}`` is its name, ``{body}`` lines over ``x`` (M) and ``scale`` (S) that end with
a result of its kind, ``{expr}`` an expression of such a result. The named function takes an M.
"""

from __future__ import annotations

DEFINITIONS: tuple[str, ...] = tuple(r"""
def {f}(x, scale=1.5):
    {body}

def {f}(x, *, scale={num}):
    {body}

def make_{f}(scale):
    def inner(x):
        {body}
    return inner
{f} = make_{f}({num})

def make_{f}(scale):
    bias = jnp.asarray(scale)
    @jax.jit
    def inner(x):
        x = x + bias
        {body}
    return inner
{f} = make_{f}({num})

scale = {num}
{f} = lambda x: {expr}

@jax.jit
def {f}(x, scale=jnp.float32(2)):
    {body}

@functools.partial(jax.jit, static_argnames=('scale', 'flip'))
def {f}(x, scale={num}, flip=True):
    x = x[::-1] if flip else x
    {body}

@jax.checkpoint
def {f}(x, scale={num}):
    {body}

def base_{f}(scale, x):
    {body}
{f} = functools.partial(base_{f}, {num})

@functools.partial(jax.jit, static_argnums=1)
def base_{f}(x, n, scale):
    for _ in range(n):
        x = jnp.tanh(x) * scale
    {body}
{f} = lambda x: base_{f}(x, {int} + 1, {num})

@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Layer_{f}:
    w: Any
    b: Any = 0.5
    name: str = dataclasses.field(default='layer', metadata=dict(static=True))
    def __call__(self, x):
        scale = self.b
        x = x * self.w
        {body}
{f} = Layer_{f}(jnp.float32({num}))

class Params_{f}(NamedTuple):
    w: Any
    b: Any = 1.0
def {f}(x, params=Params_{f}({num})):
    scale = params.b
    params = params._replace(w=params.w * 2)
    x = x * params.w
    {body}

def {f}(x):
    params = {'w': x, 'scale': {num}}
    def loss(params):
        x, scale = params['w'], params['scale']
        {body}
    return loss(params)

@jax.named_call
def {f}(x, scale={num}):
    {body}

def logged_{f}(fun):
    @functools.wraps(fun)
    def wrapped(*args, **kwargs):
        return fun(*args, **kwargs)
    return wrapped
@logged_{f}
def {f}(x, scale={num}):
    {body}

@jax.custom_jvp
def {f}(x):
    scale = {num}
    {body}
@{f}.defjvp
def {f}_jvp(primals, tangents):
    x, = primals
    t, = tangents
    out = {f}(x)
    return out, jax.tree.map(lambda o: jnp.full_like(o, 2) * t.sum().astype(o.dtype), out)

@jax.custom_vjp
def {f}(x):
    scale = {num}
    {body}
def {f}_fwd(x):
    return {f}(x), {saved}
def {f}_bwd(saved, ct):
    shape = (3, 4)
    {unpack}
    return (jnp.ones(shape, DTYPE) * ct.sum().astype(DTYPE),)
{f}.defvjp({f}_fwd, {f}_bwd)

@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def base_{f}(x, n):
    scale = n * 1.
    {body}
def fwd_{f}(x, n):
    return base_{f}(x, n), x.shape
def bwd_{f}(n, shape, ct):
    return (jnp.full(shape, n, DTYPE) * ct.sum().astype(DTYPE),)
base_{f}.defvjp(fwd_{f}, bwd_{f})
{f} = lambda x: base_{f}(x, {int})

@jax.custom_vjp
def {f}(x):
    scale = {num}
    {body}
def {f}_fwd(x):
    return {f}(x.value), (x.perturbed, x.value)
def {f}_bwd(saved, ct):
    perturbed, x = saved
    return (jnp.cos(x) * ct.sum().astype(DTYPE) if perturbed else None,)
{f}.defvjp({f}_fwd, {f}_bwd, symbolic_zeros=True)

def {f}(x, scale={num}):
    if x.ndim == 1:
        x = jnp.stack([x] * 3)
    {body}
""".strip().split("\n\n"))

# Residuals of a fwd, and how its bwd unpacks them.
SAVED: tuple[tuple[str, str], ...] = (
    ("x.shape", "shape = saved"),
    ("(x, x.shape[0], True)", "x, n, flag = saved\nct = ct * n if flag else ct"),
    ("None", "assert saved is None"),
    ("{'x': x, 'n': {int}}", "ct = ct * saved['n'] + saved['x'].mean()"),
    ("(x.ndim, None, [1, 2.5])", "n, _, (one, half) = saved\nct = ct * (n + half)"),
    ("(x > 0, np.arange(4.), 3)", "mask, row, n = saved\nct = ct * mask.sum() + row[n]"),
    ("x", "ct = ct * jnp.mean(saved)"),
)

# Calls of a function from M to S, and of one from M to M.
OF_SCALARS: tuple[str, ...] = tuple(r"""
{f}(x)
jax.jit({f})(x)
jax.grad({f})(x)
jax.jit(jax.grad({f}))(x)
jax.value_and_grad({f})(x)
jax.jvp({f}, (x,), (jnp.ones_like(x),))
jax.vjp({f}, x)[1](jnp.ones_like({f}(x)))
jax.linearize({f}, x)[1](x)
jax.vmap({f})(jnp.stack([x, x + 1]))
jax.vmap(jax.grad({f}))(jnp.stack([x, -x]))
jax.jit(jax.vmap(jax.value_and_grad({f})))(jnp.stack([x, -x]))
jax.grad(lambda s: {f}(x * s))(2.0)
jax.hessian(lambda r: {f}(x.at[0].set(r)))(x[0])
jax.jacfwd({f})(x)
jax.jacrev({f})(x)
lax.scan(lambda c, s: (c + {f}(x * s), c), jnp.zeros((), DTYPE), jnp.arange(3.).astype(DTYPE))
lax.map(lambda s: {f}(x + s), jnp.arange(2.))
jax.jit({f}).lower(x).compile()(x)
jax.eval_shape({f}, x)
jax.jit({f}, donate_argnums=0)(x + 0)
sum({f}(x * s) for s in (1, 2.0))
[{f}(x), {f}(-x)]
jax.grad(lambda p: {f}(p['w'] * p['b']))({'w': x, 'b': 2.0})
jax.grad(jax.checkpoint({f}))(x)
jax.grad(lambda x: (x * jax.grad({f})(x)).sum())(x)
jax.jit({f}).eval_shape(x)
jax.value_and_grad(lambda x: ({f}(x), {'aux': x * 2, 'n': 3}), has_aux=True)(x)
jax.grad(lambda x, n: {f}(x) * n, argnums=0)(x, 3)
jax.jit({f}).trace(x).out_info
jax.grad({f})(np.asarray(x) if DTYPE != 'bfloat16' else x)
jax.tree.map(lambda s: {f}(x * s), {'a': 1, 'b': [2., x]})
lax.cond(x.sum() > 0, {f}, lambda x: {f}(-x), x)
jax.vmap(lambda s: {f}(x * s), out_axes=0)(jnp.arange(3.))
""".strip().splitlines())

OF_ARRAYS: tuple[str, ...] = tuple(r"""
{f}(x)
jax.jit({f})(x)
jax.vmap({f})(jnp.stack([x, x]))
jax.jvp({f}, (x,), (x,))
jax.vjp({f}, x)[1](jnp.ones_like({f}(x)))
jax.jit(lambda x: {f}(x) + {f}(x * 2))(x)
jax.grad(lambda x: ({f}(x) ** 2).sum())(x)
jax.jit(jax.grad(lambda x: {f}(x).sum()))(x)
lax.scan(lambda c, _: ({f}(c).astype(c.dtype), c), x, None, length=2)
lax.fori_loop(0, 2, lambda i, c: {f}(c).astype(c.dtype), x)
jax.linearize({f}, x)[1](x)
jax.jacfwd(lambda s: {f}(x * s))(1.0)
jax.eval_shape({f}, x)
jax.vmap({f}, in_axes=2, out_axes=1)(jnp.stack([x, x + 1], axis=-1))
[{f}(x)[i, [0, 1]] for i in range(3)]
functools.reduce(lambda a, g: g(a), [{f}, {f}], x)
jax.jit({f}).lower(x).compile()(x)
jax.checkpoint({f})(x)
jax.tree.map({f}, {'a': x, 'b': (x * 2,)})
{f}(x).at[[0, 1], [1, 0]].set(0)
jax.hessian(lambda s: {f}(x * s).sum())(0.5)
jax.vmap(jax.vmap({f}))(jnp.stack([x, x])[None])
""".strip().splitlines())
