"""Exported folders for browsers, replayed here the way the script does it, and by Chromium."""

from __future__ import annotations

import functools
import http.server
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.array import tree
from fnx.core.support.errors import ArgumentError, DTypeError
from tests.devices.conftest import found
from tests.exporting.test_graph_file import FUNCTIONS as ALL
from tests.exporting.test_graph_file import W, X

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--enable-unsafe-webgpu",
         "--use-webgpu-adapter=swiftshader"]
HOST_DECIDES = {"while"}
FUNCTIONS = {**ALL, "narrow": lambda x: ALL["narrow"](x).astype(jnp.float32),
             "scan of parts of words": lambda x: fnx.lax.scan(
                 lambda c, r: (c * 3 + r, c - r), jnp.ones((4, 4), jnp.int16),
                 jnp.ones((6, 4, 4), jnp.int16) * x[0, 0].astype(jnp.int16))}


def replayed(files: dict[str, bytes], inputs: list[Any]) -> list[Any]:
    """Replay a folder in Python as replay.js does."""
    device: Any = found("webgpu")
    driver = device.driver
    usage, gpu, compute = driver.wgpu.BufferUsage, driver.gpu, driver.wgpu.ShaderStage.COMPUTE
    about, data = json.loads(files["f.json"]), files["f.bin"]
    memory = gpu.create_buffer(size=about["memory"], usage=usage.STORAGE | usage.COPY_SRC |
                               usage.COPY_DST)
    params = gpu.create_buffer(size=max(about["params"], 256),
                               usage=usage.UNIFORM | usage.COPY_DST)
    if about["params"]:
        gpu.queue.write_buffer(params, 0, data[:about["params"]])
    start = about["params"]
    for at, nbytes in about["consts"]:
        whole = nbytes + 3 & ~3
        gpu.queue.write_buffer(memory, at, data[start:start + whole])
        start += whole
    assert start == len(data)
    for want, value in zip(about["ins"], inputs, strict=True):
        gpu.queue.write_buffer(memory, want["at"], value)
    encoder = gpu.create_command_encoder()
    work = encoder.begin_compute_pass()
    for launch in about["launches"]:
        kernel = about["kernels"][launch["kernel"]]
        layout = gpu.create_bind_group_layout(entries=[
            {"binding": 0, "visibility": compute, "buffer": {"type": "storage"}},
            {"binding": 1, "visibility": compute, "buffer": {
                "type": "uniform", "has_dynamic_offset": True,
                "min_binding_size": 4 * launch["words"]}}])
        pipeline = gpu.create_compute_pipeline(
            layout=gpu.create_pipeline_layout(bind_group_layouts=[layout]),
            compute={"module": gpu.create_shader_module(code=files[kernel["file"]].decode()),
                     "entry_point": kernel["symbol"]})
        group = gpu.create_bind_group(layout=layout, entries=[
            {"binding": 0, "resource": {"buffer": memory, "offset": 0, "size": about["memory"]}},
            {"binding": 1, "resource": {"buffer": params, "offset": 0,
                                        "size": 4 * launch["words"]}}])
        work.set_pipeline(pipeline)
        work.set_bind_group(0, group, [launch["at"]])
        work.dispatch_workgroups(*launch["groups"])
    work.end()
    gpu.queue.submit([encoder.finish()])
    out = []
    for o in about["outs"]:
        t = np.dtype(o["type"])
        count = int(np.prod(o["shape"]))
        raw = gpu.queue.read_buffer(memory, o["at"], count * t.itemsize + 3 & ~3)
        out.append(np.frombuffer(raw, t, count).reshape(o["shape"]))
    return out


@pytest.mark.cases(2)
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in HOST_DECIDES])
def test_it_agrees(name: str) -> None:
    f = FUNCTIONS[name]
    got = replayed(fnx.export(f, X, to="webgpu", name="f").files, [X])
    want = [np.asarray(v) for v in tree.leaves(f(jnp.asarray(X)))]
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", sorted(HOST_DECIDES))
def test_what_a_page_cannot_queue_is_refused_with_the_line(name: str) -> None:
    with pytest.raises((ArgumentError, DTypeError)) as why:
        fnx.export(FUNCTIONS[name], X, to="webgpu")
    assert why.value.hint and "test_graph_file.py" in str(why.value)


def test_too_much_memory_is_refused() -> None:
    with pytest.raises(ArgumentError, match="at most 134,217,728 bytes"):
        fnx.export(lambda x: x + 1, fnx.ShapeDtypeStruct((1 << 25,), "float32"), to="webgpu")
    with pytest.raises(DTypeError, match="float64"):
        fnx.export(lambda x: x * 2, fnx.ShapeDtypeStruct((3,), "float64"), to="webgpu")


PAGE = """<script type="module">
import { load } from "./f.js";
let said;
try {
  const f = await load();
  const x = new Float32Array(%s);
  const twice = await Promise.all([f(x), f(x.map((v) => 2 * v))]);
  said = twice.map((r) => r.map((a) => [...a]));
  try { await f(new Float32Array(3)); } catch (error) { said.push(String(error)); }
} catch (error) { said = String(error); }
await fetch("said", { method: "POST", body: JSON.stringify(said) });
</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is here")
def test_a_page_computes_it(tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    def f(x: Any) -> Any:
        return fnx.nn.softmax(jnp.tanh(x) @ W), x.argmax(1)

    fnx.export(f, X, to="webgpu", name="f").save(tmp_path)
    (tmp_path / "index.html").write_text(PAGE % json.dumps(X.ravel().tolist()))
    said: list[Any] = []
    came = threading.Event()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_POST(self) -> None:
            said.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()
            came.set()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), functools.partial(Handler, directory=str(tmp_path))) as server, \
            sync_playwright() as playwright:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.server_address[1]}/")
        for _ in range(900):
            if came.is_set():
                break
            page.wait_for_timeout(100)
        browser.close()
        server.shutdown()
    assert came.is_set() and isinstance(said[0], list), said
    first, second, refused = said[0]
    for got, x in ((first, X), (second, 2 * X)):
        soft, best = f(jnp.asarray(x))
        np.testing.assert_allclose(np.reshape(got[0], (5, 3)), np.asarray(soft), rtol=2e-5)
        assert got[1] == np.asarray(best).tolist()
    assert "expected argument 0 to be a Float32Array of [5,8]" in refused
