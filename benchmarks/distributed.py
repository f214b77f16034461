"""Compare two processes of fnx with what people use instead, in one run.

    python benchmarks/distributed.py [rounds]

    fnx      arrays over two processes, under jit
    raw      fnx in each process alone, gradients summed by mpi4py
    JAX      two processes, with its gloo collectives
    PyTorch  two processes: DistributedDataParallel, with gloo

Each process has one thread. All sides are started at once, and take turns: while one runs, the
others wait for a word of this program. A ratio is fnx / another side within one round; the table
shows the medians over the rounds. The losses must agree.
"""

from __future__ import annotations

import importlib
import itertools
import os
import socket
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
COUNT = 2  # processes
ROUNDS, SECONDS = 15, 0.05  # of a turn, about
MLPS = {"mlp64": (64, 32), "mlp512": (512, 128), "mlp1024": (1024, 256)}  # width, rows of a process
SUMS = {"sum 1 KB": 1 << 8, "sum 64 KB": 1 << 14, "sum 1 MB": 1 << 18, "sum 16 MB": 1 << 22}
NAMES = [*MLPS, *SUMS]
AGREE = 1e-4

Run = Callable[[int], float]  # number of steps -> a value that all sides must share


def mlp(width: int, rows: int, rank: int) -> tuple[list[Any], Any, Any]:
    """Return weights and the rows of a process."""
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> Any:
        return (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
    sizes = [64, width, width, 10]
    weights = [[draw(m, n), draw(n)] for m, n in itertools.pairwise(sizes)]
    x, y = draw(COUNT * rows, 64), draw(COUNT * rows, 10)
    part = slice(rank * rows, (rank + 1) * rows)
    return weights, x[part], y[part]


def loss_of(np_like: Any) -> Callable[..., Any]:
    """Return the loss of a network, in the words of a NumPy."""
    def loss(weights: Any, x: Any, y: Any) -> Any:
        for w, b in weights[:-1]:
            x = np_like.tanh(x @ w + b)
        return ((x @ weights[-1][0] + weights[-1][1] - y) ** 2).mean()
    return loss


def step_of(xp: Any, of: Any) -> Callable[..., Any]:
    """Return a step of training, for fnx or JAX."""
    def step(weights: Any, x: Any, y: Any) -> Any:
        loss, grads = of.value_and_grad(loss_of(xp))(weights, x, y)
        return of.tree_util.tree_map(lambda w, g: w - 0.01 * g, weights, grads), loss
    return step


def arrays(of: Any, xp: Any, rank: int) -> Iterator[tuple[str, Run]]:
    """Yield the workloads of fnx, or of JAX: programs on arrays over the processes."""
    mesh = of.sharding.Mesh(np.array(of.devices()), ("data",))
    sharding = of.sharding.NamedSharding(mesh, of.sharding.PartitionSpec("data"))

    def cut(block: Any) -> Any:
        return of.make_array_from_process_local_data(sharding, block)
    step = of.jit(step_of(xp, of))
    for name, (width, rows) in MLPS.items():
        weights, x, y = mlp(width, rows, rank)
        yield name, trains(of, step, weights, cut(x), cut(y))
    total = of.jit(lambda x: x.sum(0))
    for name, size in SUMS.items():
        yield name, sums(of, total, cut(np.full((1, size), rank + 1.0, np.float32)))


def trains(of: Any, step: Any, weights: Any, x: Any, y: Any) -> Run:
    state = [weights]

    def run(count: int) -> float:
        loss = 0.0
        for _ in range(count):
            state[0], loss = step(state[0], x, y)
        of.block_until_ready(state[0])
        return float(loss)
    return run


def sums(of: Any, total: Any, x: Any) -> Run:
    def run(count: int) -> float:
        out = x
        for _ in range(count):
            out = of.block_until_ready(total(x))
        return float(np.asarray(out)[0])
    return run


def of_fnx(rank: int, address: str) -> Iterator[tuple[str, Run]]:
    """Yield the workloads of fnx."""
    fnx, xp = importlib.import_module("fnx"), importlib.import_module("fnx.numpy")
    fnx.distributed.initialize()
    return arrays(fnx, xp, rank)


def of_raw(rank: int, address: str) -> Iterator[tuple[str, Run]]:
    """Yield the workloads of fnx in one process, and mpi4py."""
    mpi = importlib.import_module("mpi4py.MPI")
    fnx, xp = importlib.import_module("fnx"), importlib.import_module("fnx.numpy")
    grads_of = fnx.jit(fnx.value_and_grad(loss_of(xp)))
    update = fnx.jit(lambda weights, grads: fnx.tree.map(
        lambda w, g: w - 0.01 / COUNT * g, weights, grads))

    def step(weights: Any, x: Any, y: Any) -> Any:
        leaves, structure = fnx.tree.flatten(grads_of(weights, x, y))
        flat = np.concatenate([np.asarray(g).ravel() for g in leaves])
        mpi.COMM_WORLD.Allreduce(mpi.IN_PLACE, flat)
        ends = [0, *itertools.accumulate(g.size for g in leaves)]
        loss, grads = structure.unflatten([flat[a:b].reshape(g.shape) for g, (a, b) in zip(
            leaves, itertools.pairwise(ends))])
        return update(weights, grads), loss / COUNT
    for name, (width, rows) in MLPS.items():
        yield name, trains(fnx, step, *mlp(width, rows, rank))
    for name, size in SUMS.items():
        x = np.full(size, rank + 1.0, np.float32)

        def total(x: Any) -> Any:
            out = np.empty_like(x)
            mpi.COMM_WORLD.Allreduce(x, out)
            return out
        yield name, sums(fnx, total, x)


def of_jax(rank: int, address: str) -> Iterator[tuple[str, Run]]:
    """Yield the workloads of JAX."""
    jax, xp = importlib.import_module("jax"), importlib.import_module("jax.numpy")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, COUNT, rank)
    return arrays(jax, xp, rank)


def of_torch(rank: int, address: str) -> Iterator[tuple[str, Run]]:
    """Yield the workloads of PyTorch."""
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    nn, comm = torch.nn, importlib.import_module("torch.distributed")
    comm.init_process_group("gloo", f"tcp://{address}", world_size=COUNT, rank=rank)
    parallel = importlib.import_module("torch.nn.parallel")
    for name, (width, rows) in MLPS.items():
        weights, *data = mlp(width, rows, rank)
        x, y = map(torch.from_numpy, data)
        layers = [nn.Linear(*w.shape) for w, _ in weights]
        with torch.no_grad():
            for layer, (w, b) in zip(layers, weights):
                layer.weight.copy_(torch.from_numpy(w.T))
                layer.bias.copy_(torch.from_numpy(b))
        model = parallel.DistributedDataParallel(nn.Sequential(
            layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2]))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

        def run(count: int, model: Any = model, optimizer: Any = optimizer, x: Any = x, y: Any = y
                ) -> float:
            for _ in range(count):
                optimizer.zero_grad()
                loss = ((model(x) - y) ** 2).mean()
                loss.backward()
                optimizer.step()
            comm.all_reduce(loss := loss.detach())
            return float(loss) / COUNT
        yield name, run
    for name, size in SUMS.items():
        x = torch.full((size,), rank + 1.0)

        def total(count: int, x: Any = x) -> float:
            for _ in range(count):
                out = x.clone()
                comm.all_reduce(out)
            return float(out[0])
        yield name, total


SIDES = {"fnx": of_fnx, "raw": of_raw, "JAX": of_jax, "PyTorch": of_torch}
OF_MPI = "fnx", "raw"


def serve(side: str, rank: int, address: str, port: str) -> None:
    """Run the workloads of a side when told to: (name, steps) -> seconds, value."""
    with Client(("localhost", int(port)), authkey=b"benchmark") as parent:
        runs = dict(SIDES[side](rank, address))
        parent.send((side, rank))
        while message := parent.recv():
            name, count = message
            start = perf_counter()
            value = runs[name](count)
            parent.send((perf_counter() - start, value))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port: int = probe.getsockname()[1]
        return port


def start(side: str, port: int) -> list[subprocess.Popen[bytes]]:
    """Start the processes of a side."""
    address = f"localhost:{free_port()}"
    environment = os.environ | {
        "FNX_WORKERS": "1", "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu", "NPROC": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    command = [sys.executable, __file__, "--serve", side, address, str(port)]
    if side in OF_MPI:
        mpiexec = Path(sys.executable).parent / "mpiexec"
        return [subprocess.Popen([mpiexec, "-n", str(COUNT), *command], env=environment)]
    return [subprocess.Popen(command, env=environment | {"PMI_RANK": str(i)})
            for i in range(COUNT)]


def turn(side: list[Connection], name: str, count: int) -> tuple[float, float]:
    """Return the seconds of a step, and the value, of one turn of a side."""
    for process in side:
        process.send((name, count))
    answers = [process.recv() for process in side]
    return max(seconds for seconds, _ in answers) / count, answers[0][1]


def measure(sides: dict[str, list[Connection]], name: str, rounds: int) -> str:
    """Return the row of a workload."""
    times: dict[str, list[float]] = {side: [] for side in sides}
    values = {side: turn(processes, name, 2)[1] for side, processes in sides.items()}
    counts = {side: max(1, int(SECONDS / turn(processes, name, 5)[0]))
              for side, processes in sides.items()}
    for _ in range(rounds):
        for side, processes in sides.items():
            times[side].append(turn(processes, name, counts[side])[0])
    cells = [f"{statistics.median(seconds) * 1e6:.0f}" for seconds in times.values()]
    cells += [f"{statistics.median(a / b for a, b in zip(times['fnx'], times[side])):.2f}"
              for side in sides if side != "fnx"]
    agrees = all(abs(v - values["fnx"]) <= AGREE * abs(v) for v in values.values())
    return " | ".join(["", name, *cells, "yes" if agrees else f"no: {values}", ""]).strip()


def main(rounds: int) -> None:
    port = free_port()
    with Listener(("localhost", port), authkey=b"benchmark", backlog=COUNT * len(SIDES)) as door:
        started = [process for side in SIDES for process in start(side, port)]
        joined: dict[tuple[str, int], Connection] = {}
        for process in [door.accept() for _ in range(COUNT * len(SIDES))]:
            joined[process.recv()] = process
    sides = {side: [joined[side, rank] for rank in range(COUNT)] for side in SIDES}
    head = ["", "workload", *[f"{side} us" for side in sides],
            *[f"fnx / {side}" for side in sides if side != "fnx"], "agrees", ""]
    print(" | ".join(head).strip() + "\n" + "| --- " * (len(head) - 2) + "|")
    for name in NAMES:
        print(measure(sides, name, rounds), flush=True)
    for process in joined.values():
        process.send(None)
    for ended in started:
        ended.wait()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], int(os.environ["PMI_RANK"]), *sys.argv[3:])
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
