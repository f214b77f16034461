"""Devices with their own memory and queues: the layers above their drivers.

    device.py               encodes commands; acquires memory; loops and conditions on the host
    static_launches.py      commands that do not depend on the host: linked or recorded once
    call_list.py            calls of a driver's C functions, run by machine code
    memory.py               storages, and a pool of free blocks by size class
    transfer.py             copies from device to device; pinned_memory.py holds their chunks
    cancellation.py         time limit and Ctrl-C: aborting kernels that do not end
    driver.py               ``QueueDriver``, the operations of one in-order queue
    in_order_driver.py      drivers of queues that run their commands in order; copy_order.py orders
                            a queue of copies and one of kernels
    queues_driver.py        drivers of several queues, for which commands say what they wait for
    driver_probe.py         a trial of a driver in a child process

Counts, offsets and limits are checked here, so drivers (backends/opencl.py, cuda.py, webgpu.py)
check nothing. docs/gpu.md explains kernels for workgroups and how to write a driver.
"""
