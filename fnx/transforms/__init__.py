"""FUNCTION -> FUNCTION transforms, and ``jit``, which dispatches the result to the compiler.

    grad.py, vjp.py, jvp.py, jacobian.py     derivatives: the walks are in transforms/autodiff
    checkpoint.py                            rematerialization
    vmap.py                                  batching: the rules are in transforms/batching
    call.py                                  call boundaries and user-written kernels
    abstract_eval.py                         shapes without values
    jit.py, link.py, stages.py               dispatch (transforms/dispatch), compile, stages
    transformed.py                           the base class of transformed functions

Every transform traces its function through core/tracing/trace.py and works on the closed FUNCTION,
so transforms compose in any order and to any depth. tests/laws/matrix.py compares every public
function under each composition of transforms with the composition that is one transform shorter.

Only link.py and jit.py import lower and backends. ``link`` looks for the program on disk, else it
loads the compiler. Under ``config.search`` it lowers a FUNCTION twice: the first time to collect
its kernels, of which dispatch/schedule_search.py times candidate schedules, the second time with
the schedules found.
"""
