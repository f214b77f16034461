"""parts: what kernel nodes are made of, by name."""

from __future__ import annotations

from fnx.core import build, dtypes, ops, parts

F = dtypes.float32
R = build.range_(8, 0)
PLACE = build.at(build.ref(0, F, (8,)), R)
LOW, HIGH, ODD = (build.lt(build.index_const(n), R) for n in (1, 2, 3))


def test_loads_and_stores_are_about_a_place() -> None:
    load, store = build.load(PLACE, LOW), build.store(PLACE, build.const(1, F), LOW)
    for access in (load, store):
        assert parts.place(access) is PLACE
        assert parts.buffer(access) is parts.buffer(PLACE) is PLACE.src[0]
        assert parts.indices(access) == parts.indices(PLACE) == (R,)
        assert parts.validity(access) is LOW
    assert parts.value(store) is build.const(1, F)
    assert parts.validity(build.load(PLACE)) is None
    assert parts.validity(build.store(PLACE, build.const(1, F))) is None


def test_stages_and_folds_close_their_ranges() -> None:
    value = build.load(PLACE)
    stage, fold = build.stage(value, [R], id=0), build.reduce_ranges(value, ops.ADD, [R])
    for node in (stage, fold):
        assert parts.value(node) is value and parts.closed(node) == (R,)
    assert parts.dims(stage) == parts.dims(PLACE.src[0]) == (parts.extent(R),)


def test_a_validity_is_a_conjunction_read_from_the_left() -> None:
    both = build.and_(build.and_(LOW, HIGH), ODD)
    assert set(parts.conjuncts(both)) == {LOW, HIGH, ODD}
    assert parts.conjuncts(LOW) == [LOW] and parts.conjuncts(None) == []
    bits = build.elementwise(ops.AND, *[build.const(n, dtypes.int32) for n in (5, 6)])
    assert parts.conjuncts(bits) == [bits]
