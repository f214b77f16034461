"""A tiled KERNEL -> a PROGRAM: parts with data of their own, put together in linearize.py.

    part            holds                           promises
    loop_nest       loops and statements in order   made from the kernel alone, before any line;
                    (the plan)                      never changes
    roles           what each range becomes         loops, instances or lanes; pure
    conditions      the truth of comparisons        what is known is never tested
    builder         lines, a list per open loop     knows loops, no kernel: a line goes as far
                                                    out as its operands allow, and stands once
    addresses       offsets of places               pointers chained by loop, masks of lanes
    masked          loads of some lanes             no lane lies outside of its buffer
    values          node, instance -> line          each is written once while its loops are open
    accumulators    what open REDUCEs have folded   one for each instance and lane
    stores          writes that are ready           written after the loads beside them

    linearize  ->  accumulators, stores, loop_peeling  ->  values  ->  masked  ->  addresses
                                       values -> conditions, roles        addresses -> builder

Each takes those right of it in its constructor or as an argument; none reaches back, except
that an index's atoms are values, which ``addresses`` asks for by the function it is given.
Before: fills.py chooses blocks that are transposed, decompose.py leaves what the target has.
"""
