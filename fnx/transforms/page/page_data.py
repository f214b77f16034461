"""What the page shows of a Lowering, as values that become JSON.

The overview names all passes and kernels; large parts (texts, graphs, memory, source) are made when
the reader asks for them, and cached.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fnx.core.ir import accessors, ops
from fnx.core.ir.cache import cached_property, find_graphs
from fnx.core.ir.derivations import recent_forms
from fnx.core.ir.kernel_code import Chunk
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels import show
from fnx.core.support.errors import ArgumentError, kernel_label, short_file_name
from fnx.transforms.inspect.graph_layout import draw_graph
from fnx.transforms.inspect.lowering import Lowering

MAX_RUNS = 4_000  # most kernels of a timeline
_CONTEXT_LINES = 3  # context lines before and after source lines with nodes

Json = Any  # dict, list, str, int, float or None, nested


class PageData:
    """One Lowering for the page; each method returns a part of it."""

    def __init__(self, name: str, lowering: Lowering) -> None:
        self.name, self.lowering = name, lowering

    @cached_property
    def overview(self) -> Json:
        """Names, steps, passes and kernels."""
        lowering = self.lowering
        return {"name": self.name, "title": repr(lowering)[1:-1],
                "steps": [{"name": name, "times": lowering.times(name)} for name in lowering.steps],
                "passes": self.passes,
                "kernels": [{"name": row[0], "line": row[1], "loops": row[2], "flops": row[3],
                             "bytes": row[4], "schedule": row[5], "chosen": row[6]}
                            for row in lowering.rows]}

    def step(self, name: str) -> Json:
        """Return the text of a step of ``show``."""
        return {"text": self.lowering.text(name)}

    @cached_property
    def passes(self) -> Json:
        """An entry for each pass that ran; a pass over a kernel bears the kernel's name."""
        rows, kernel_name = [], ""
        for pass_run in self.lowering.passes:
            before, after = find_graphs(pass_run.before), find_graphs(pass_run.after)
            kernel_name = _kernel_name([*before, *after], kernel_name)
            rows.append({"name": pass_run.name, "of": kernel_name, "ms": pass_run.milliseconds,
                         "changed": before != after, "why": list(pass_run.why),
                         "rules": [{"name": name, "count": n} for name, n in pass_run.rules]})
        return rows

    def pass_details(self, i: int) -> Json:
        """Return a pass: its input and output as text, and the graph of its output."""
        before, after = (find_graphs(side) for side in
                         (self.lowering.passes[i].before, self.lowering.passes[i].after))
        return {**self.passes[i], "before": self._text(before), "after": self._text(after),
                "graph": draw_graph(after, set(toposort(before, into_functions=True)),
                                    self.lowering.lines)}

    def _text(self, graphs: Sequence[UOp]) -> str:
        """Return graphs as text, cached, as the output of a pass is the input of the next."""
        text: str = recent_forms.get_or_make((show.pretty, *graphs), lambda: show.pretty(
            list(graphs)) if graphs else "(no graph at this border)")
        return text

    def kernel(self, i: int) -> Json:
        """Return a command's kernel: its graph, and the levels at which its text is available."""
        node = self.lowering.kernels[i].node
        return {"levels": list(self.lowering.kernel_texts(node)),
                "graph": draw_graph([node], set(), self.lowering.lines)}

    def level(self, i: int, name: str) -> Json:
        """Return the text of a command's kernel at a level; for a large one machine code takes a
        while."""
        texts = self.lowering.kernel_texts(self.lowering.kernels[i].node)
        if name not in texts:
            raise ArgumentError("expected a level of the kernel")
        return {"text": texts[name]()}

    @cached_property
    def memory(self) -> Json:
        """The intermediate buffers: offset, size, and the first and last command that use each."""
        runs = accessors.all_execs(self.lowering.commands)
        spans = _loop_spans(self.lowering.commands, {run: i for i, run in enumerate(runs)})
        users: dict[tuple[int, int], list[int]] = {}
        external: dict[tuple[str, int], int] = {}
        for i, run in enumerate(runs):
            for slot in (s for memory in run.src[1:] if memory.op is not ops.CONST
                         for s in accessors.possible_slots(memory)):
                if slot.kind == "arena":
                    users.setdefault((slot.offset, slot.nbytes), []).extend(spans.get(i, (i, i)))
                else:
                    key = slot.kind, slot.index
                    external[key] = max(external.get(key, 0), slot.offset + slot.nbytes)
        rows = [{"offset": offset, "bytes": size, "first": min(steps), "last": max(steps),
                 "name": runs[min(steps)].arg.name} for (offset, size), steps in users.items()]
        return {"arena": self.lowering.arena, "commands": [run.arg.name for run in runs],
                "buffers": rows, "given": [{"kind": kind, "index": index, "bytes": size}
                                           for (kind, index), size in external.items()]}

    @cached_property
    def timeline(self) -> Json:
        """The kernels of one call in nanoseconds since the first one began, the parts that each
        worker ran, and the bytes of intermediate buffers that are live at each."""
        recorded = self.lowering.timeline
        runs = recorded.runs[:MAX_RUNS]
        origin = runs[0].start if runs else 0
        names: list[str] = self.memory["commands"]
        live_bytes = [0] * len(names)
        for buffer in self.memory["buffers"]:
            for i in range(buffer["first"], buffer["last"] + 1):
                live_bytes[i] += buffer["bytes"]
        rows, chunks, command = [], [], -1
        for k, run in enumerate(runs):
            command = _next_command(names, run.name, command)
            rows.append({"name": run.name, "line": kernel_label("", run.locs[:1]).strip(" ()"),
                         "start": run.start - origin, "stop": run.stop - origin,
                         "bytes": run.nbytes, "flops": run.flops,
                         "living": live_bytes[command] if command >= 0 else 0})
            chunks += [[k, c.worker, c.start - origin, c.stop - origin] for c in
                       run.chunks or (Chunk(0, run.start, run.stop),)]
        return {"workers": recorded.workers, "runs": rows, "parts": chunks,
                "left_out": recorded.lost + len(recorded.runs) - len(runs)}

    @cached_property
    def source(self) -> Json:
        """The user's source lines that nodes came from, with node counts and the kernels of
        each; first the file of the most nodes."""
        counts: dict[tuple[str, int], int] = {}
        for node in toposort([self.lowering.graph], into_functions=True):
            for file, line, *_ in [loc for loc in node.locs if loc in self.lowering.lines][:1]:
                counts[file, line] = counts.get((file, line), 0) + 1
        kernels: dict[str, list[str]] = {}
        for info in self.lowering.rows:
            for location in info[1].split(", "):
                kernels.setdefault(location, []).append(info[0])
        files: dict[str, dict[int, int]] = {}
        for (file, line), n in counts.items():
            files.setdefault(file, {})[line] = n
        return [_source_lines(name, files[name], kernels) for name in
                sorted(files, key=lambda name: -sum(files[name].values()))]


def page_parts(data: PageData) -> dict[str, Callable[..., Json]]:
    """Return the parts of the page by name; all but the first four use a number or a name."""
    return {"overview": lambda _: data.overview, "memory": lambda _: data.memory,
            "timeline": lambda _: data.timeline, "source": lambda _: data.source,
            "step": data.step,
            "pass": lambda i: data.pass_details(_parse_index(i, len(data.lowering.passes))),
            "kernel": lambda i: data.kernel(_parse_index(i, len(data.lowering.kernels))),
            **{name: partial(_level_text, data, name) for name in LEVELS}}


LEVELS = ("tiled", "program", "llvm", "assembly")


def _level_text(data: PageData, name: str, i: str) -> Json:
    return data.level(_parse_index(i, len(data.lowering.kernels)), name)


def _parse_index(text: str, size: int) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) >= size:
        raise ArgumentError(f"expected a number below {size}, got {text[:20]!r}")
    return int(text)


def _kernel_name(graphs: Sequence[UOp], previous: str) -> str:
    """Return the name of the kernel that a pass ran on: for a program, that of the kernel before
    it; "" for the whole function."""
    kernels = [str(g.arg.name) for g in graphs if g.op is ops.KERNEL]
    if kernels:
        return kernels[0]
    return previous if any(g.op is ops.PROGRAM for g in graphs) else ""


def _next_command(names: Sequence[str], name: str, start: int) -> int:
    """Return the next command of this name after an index, wrapping around as in a loop; -1 if
    none."""
    order = [*range(start + 1, len(names)), *range(start + 1)]
    return next((i for i in order if names[i] == name), -1)


def _loop_spans(commands: UOp, number_of: dict[UOp, int]) -> dict[int, tuple[int, int]]:
    """Return, for each command in a loop, the first and last command of the outermost loop around
    it."""
    spans: dict[int, tuple[int, int]] = {}
    for node in commands.src:
        if node.op is ops.CMD_LOOP:
            inside = [number_of[run] for run in accessors.all_execs(node)]
            spans.update((i, (min(inside), max(inside))) for i in inside)
    return spans


def _source_lines(name: str, counts: dict[int, int], kernels: dict[str, list[str]]) -> Json:
    """Return the lines of a file near those with nodes."""
    text = linecache.getlines(name)
    shown = sorted({n for line in counts
                    for n in range(line - _CONTEXT_LINES, line + _CONTEXT_LINES + 1)
                    if 0 < n <= max(len(text), line)})
    short = short_file_name(name)
    return {"file": short, "lines": [
        {"number": n, "text": text[n - 1].rstrip() if n <= len(text) else "",
         "nodes": counts.get(n, 0), "kernels": kernels.get(f"{short}:{n}", [])} for n in shown]}
