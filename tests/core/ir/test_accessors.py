"""Accessors: named operands of kernel nodes."""

from __future__ import annotations

from fnx.core.ir import accessors, build, dtypes, ops

F = dtypes.float32
R = build.range_(8, 0)
PLACE = build.index_into(build.ref(0, F, (8,)), R)
LOW, HIGH, ODD = (build.lt(build.index_const(n), R) for n in (1, 2, 3))


def test_loads_and_stores_are_about_a_place() -> None:
    load, store = build.load(PLACE, LOW), build.store(PLACE, build.const(1, F), LOW)
    for access in (load, store):
        assert accessors.index_node(access) is PLACE
        assert accessors.buffer(access) is accessors.buffer(PLACE) is PLACE.src[0]
        assert accessors.indices(access) == accessors.indices(PLACE) == (R,)
        assert accessors.validity(access) is LOW
    assert accessors.value(store) is build.const(1, F)
    assert accessors.validity(build.load(PLACE)) is None
    assert accessors.validity(build.store(PLACE, build.const(1, F))) is None


def test_stages_and_folds_close_their_ranges() -> None:
    value = build.load(PLACE)
    stage, fold = build.stage(value, [R], id=0), build.reduce_ranges(value, ops.ADD, [R])
    for node in (stage, fold):
        assert accessors.value(node) is value and accessors.bound_ranges(node) == (R,)
    assert accessors.dims(stage) == accessors.dims(PLACE.src[0]) == (accessors.extent(R),)


def test_a_validity_is_a_conjunction_read_from_the_left() -> None:
    both = build.and_(build.and_(LOW, HIGH), ODD)
    assert set(accessors.conjuncts(both)) == {LOW, HIGH, ODD}
    assert accessors.conjuncts(LOW) == [LOW] and accessors.conjuncts(None) == []
    bits = build.elementwise(ops.AND, *[build.const(n, dtypes.int32) for n in (5, 6)])
    assert accessors.conjuncts(bits) == [bits]
