"""Instruction emission: a tiled KERNEL -> a PROGRAM, by these components.

emit.py combines them.

    component       holds                           guarantees
    loop_nest       ordered loops and statements    built from the kernel before any line is
                    (the plan)                      emitted; immutable
    expansion       what each range expands to      loops, instances or lanes; pure
    conditions      the truth of comparisons        known conditions are never tested
                    (lower/analysis)
    builder         lines, a list per open loop     independent of the kernel: hoists each line
                                                    as far as its operands allow, and merges
                                                    equal lines
    addresses       offsets of INDEXes              pointers chained by loop, lane masks
    masked_loads    loads under a lane mask         no lane reads outside its buffer
    values          node, instance -> line          emitted once while its loops are open
    accumulators    partial results of REDUCEs      one for each instance and lane
                    that are open
    stores          pending writes                  emitted after the loads of neighboring
                                                    statements
    update_runs     loops of updates at loaded      repeated updates of an element are stored
                    indices                         once, in the order of before

    emit  ->  accumulators, stores, update_runs, loop_peeling  ->  values
                               values -> masked_loads  ->  addresses
                               values -> conditions, expansion        addresses -> builder

Each component takes those to its right in its constructor or as an argument. None refers back,
except that ``addresses`` gets the atoms of an index from ``values`` through a callback.

Passes that run before: vectorize_stage_fills.py chooses the blocks to transpose, and
legalize/decompose.py leaves only ops that the target supports.
"""
