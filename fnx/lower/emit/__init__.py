"""Instruction emission: a tiled KERNEL -> a PROGRAM, by these components.

emit/emit.py combines them.

    component       holds                           guarantees
    loop_nest       ordered loops and statements    built from the kernel before any line is
                    (the plan)                      emitted; immutable
    roles           what each range expands to      loops, instances or lanes; pure
    conditions      the truth of comparisons        known conditions are never tested
    builder         lines, a list per open loop     independent of the kernel: hoists each line
                                                    as far as its operands allow, and merges
                                                    equal lines
    addresses       offsets of INDEXes              pointers chained by loop, lane masks
    masked          loads under a lane mask         no lane reads outside its buffer
    values          node, instance -> line          emitted once while its loops are open
    accumulators    partial results of open REDUCEs one for each instance and lane
    stores          pending writes                  emitted after the loads of neighboring
                                                    statements

    linearize  ->  accumulators, stores, loop_peeling  ->  values  ->  masked  ->  addresses
                                       values -> conditions, roles        addresses -> builder

Each component takes those to its right in its constructor or as an argument. None refers back,
except that ``addresses`` gets the atoms of an index from ``values`` through a callback.

Passes that run before: emit/vectorize_stage_fills.py chooses the blocks to transpose, and
legalize/decompose.py leaves only ops that the target supports.
"""
