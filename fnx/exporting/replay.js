// Replays the launches of an exported function: one buffer, one encoder and one submit a call.

export async function load(folder = new URL(".", import.meta.url)) {
  const fetched = async (file) => {
    const answer = await fetch(new URL(file, folder));
    if (!answer.ok) throw new Error(`NAME: ${file}: ${answer.status}`);
    return answer;
  };
  const about = await (await fetched("NAME.json")).json();
  const data = await (await fetched("NAME.bin")).arrayBuffer();
  const adapter = await navigator.gpu?.requestAdapter();
  if (!adapter) throw new Error("NAME: this browser has no WebGPU");
  const device = await adapter.requestDevice();

  const { STORAGE, COPY_SRC, COPY_DST, UNIFORM, MAP_READ } = GPUBufferUsage;
  const memory = device.createBuffer({ size: about.memory, usage: STORAGE | COPY_SRC | COPY_DST });
  const params = device.createBuffer({ size: Math.max(about.params, 256),
                                       usage: UNIFORM | COPY_DST });
  if (about.params) device.queue.writeBuffer(params, 0, data, 0, about.params);
  let from = about.params;
  for (const [at, bytes] of about.consts) {
    const whole = (bytes + 3) & ~3;
    if (whole) device.queue.writeBuffer(memory, at, data, from, whole);
    from += whole;
  }

  const layouts = new Map(); // by the words of a kernel's parameters
  const layoutOf = (words) => {
    if (!layouts.has(words)) {
      const visibility = GPUShaderStage.COMPUTE;
      const layout = device.createBindGroupLayout({ entries: [
        { binding: 0, visibility, buffer: { type: "storage" } },
        { binding: 1, visibility, buffer: { type: "uniform", hasDynamicOffset: true,
                                            minBindingSize: 4 * words } }] });
      const group = device.createBindGroup({ layout, entries: [
        { binding: 0, resource: { buffer: memory } },
        { binding: 1, resource: { buffer: params, size: 4 * words } }] });
      layouts.set(words, { layout, group });
    }
    return layouts.get(words);
  };
  const wordsOf = new Map(about.launches.map((launch) => [launch.kernel, launch.words]));
  const pipelines = await Promise.all(about.kernels.map(async ({ symbol, file }, i) => {
    const code = await (await fetched(file)).text();
    const layout = device.createPipelineLayout({
      bindGroupLayouts: [layoutOf(wordsOf.get(i)).layout] });
    return device.createComputePipelineAsync({
      layout, compute: { module: device.createShaderModule({ code }), entryPoint: symbol } });
  }));
  const sizeOf = ({ shape, view }) =>
    shape.reduce((n, d) => n * d, 1) * globalThis[view].BYTES_PER_ELEMENT;

  let before = Promise.resolve(); // calls share the memory: one after the other
  const call = async (inputs) => {
    if (inputs.length !== about.ins.length) {
      throw new Error(`NAME: expected ${about.ins.length} arrays, got ${inputs.length}`);
    }
    about.ins.forEach((want, i) => {
      const given = inputs[i];
      if (!(given instanceof globalThis[want.view]) || given.byteLength !== sizeOf(want)) {
        throw new Error(`NAME: expected argument ${i} to be a ${want.view} of [${want.shape}]`);
      }
      const bytes = new Uint8Array((given.byteLength + 3) & ~3);
      bytes.set(new Uint8Array(given.buffer, given.byteOffset, given.byteLength));
      if (bytes.length) device.queue.writeBuffer(memory, want.at, bytes);
    });
    const encoder = device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    for (const { kernel, words, at, groups } of about.launches) {
      pass.setPipeline(pipelines[kernel]);
      pass.setBindGroup(0, layoutOf(words).group, [at]);
      pass.dispatchWorkgroups(...groups);
    }
    pass.end();
    const read = about.outs.map((out) => {
      const size = (sizeOf(out) + 3) & ~3;
      const buffer = device.createBuffer({ size: Math.max(size, 4), usage: MAP_READ | COPY_DST });
      if (size) encoder.copyBufferToBuffer(memory, out.at, buffer, 0, size);
      return buffer;
    });
    device.queue.submit([encoder.finish()]);
    return Promise.all(read.map(async (buffer, i) => {
      await buffer.mapAsync(GPUMapMode.READ);
      const { view } = about.outs[i];
      const found = new globalThis[view](buffer.getMappedRange().slice(0, sizeOf(about.outs[i])));
      buffer.destroy();
      return found;
    }));
  };
  return (...inputs) => (before = before.catch(() => {}).then(() => call(inputs)));
}
