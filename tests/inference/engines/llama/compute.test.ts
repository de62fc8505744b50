import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import {
  chooseCompute,
  computeInWords,
  gpuRoom,
  isSoftwareDevice,
  layersThatFit,
  type FoundGpu,
  type GpuDevices,
  type GpuKind,
  type GpuSetting,
  type LayerNeeds,
} from '../../../../src/inference/engines/llama/compute.ts';
import { devicesIn, devicesMark } from '../../../../src/inference/engines/llama/gpu-search.ts';
import { gpuVariablesIn } from '../../../../src/inference/engines/llama/gpu-variables.ts';
import { layerNeedsOf, memoryNeedsOf, needsBeside } from '../../../../src/inference/engines/llama/memory-needs.ts';

const gb = 1e9;
/** 33 layers of 0.2 GB, and 0.4 GB to compute in. */
const needs: LayerNeeds = { layers: 33, bytes: 6.6 * gb, stepBytes: 0.4 * gb };

const buildOf = (kind: GpuKind) => ({ kind, folder: `/builds/${kind}`, furtherFolder: undefined });

const devices = (names: readonly string[], freeGb = 24, isUnified = false): GpuDevices => ({
  ...{ names, isUnified, freeBytes: freeGb * gb, totalBytes: 24 * gb },
});

const sees = (kind: GpuKind, names: readonly string[], freeGb?: number): FoundGpu => ({
  build: buildOf(kind),
  devices: devices(names, freeGb),
});

const fails = (kind: GpuKind, problem: string): FoundGpu => ({ build: buildOf(kind), problem });

const lavapipe = 'llvmpipe (LLVM 15.0.6, 256 bits)';

describe('what a model is computed with', () => {
  const nothing = 'no build of llama.cpp for a GPU is installed';
  const table: readonly {
    readonly name: string;
    readonly setting: GpuSetting;
    readonly found: readonly FoundGpu[];
    readonly used: string;
    readonly why?: string | RegExp;
  }[] = [
    { name: 'nothing is installed', setting: 'auto', found: [], used: 'the processor', why: nothing },
    { name: 'layers, and nothing is installed', setting: 20, found: [], used: 'the processor', why: nothing },
    {
      name: 'off beside a GPU',
      ...{ setting: 'off', found: [sees('cuda', ['NVIDIA L4'])], used: 'the processor', why: 'gpu is off' },
    },
    {
      name: 'a GPU with room',
      ...{ setting: 'auto', found: [sees('cuda', ['NVIDIA L4'])], used: 'CUDA on NVIDIA L4, 33 of 33 layers' },
    },
    {
      name: 'a Mac',
      ...{ setting: 'auto', found: [sees('metal', ['Apple M4'])], used: 'Metal on Apple M4, 33 of 33 layers' },
    },
    {
      name: 'both builds see the same GPU',
      setting: 'auto',
      found: [sees('vulkan', ['NVIDIA L4']), sees('cuda', ['NVIDIA L4'])],
      used: 'CUDA on NVIDIA L4, 33 of 33 layers',
    },
    {
      name: 'CUDA has no driver, Vulkan has',
      setting: 'auto',
      found: [fails('cuda', 'libcuda.so.1 is missing'), sees('vulkan', ['AMD Radeon RX 7900'])],
      used: 'Vulkan on AMD Radeon RX 7900, 33 of 33 layers',
    },
    {
      name: 'a build without a device',
      ...{ setting: 'auto', found: [sees('vulkan', [])], used: 'the processor' },
      why: 'the build for Vulkan finds no device',
    },
    {
      name: 'layers, and a build without a device',
      ...{ setting: 20, found: [sees('vulkan', [])], used: 'the processor' },
      why: 'the build for Vulkan finds no device',
    },
    {
      name: 'no build works',
      setting: 'auto',
      found: [sees('vulkan', []), fails('cuda', 'its process ended by SIGABRT')],
      used: 'the processor',
      why: 'the build for CUDA cannot be used: its process ended by SIGABRT; the build for Vulkan finds no device',
    },
    {
      name: 'only a software device',
      ...{ setting: 'auto', found: [sees('vulkan', [lavapipe])], used: 'the processor' },
      why: `${lavapipe} computes with the processor, and is used only where gpu is a number of layers`,
    },
    {
      name: 'layers on a software device',
      ...{ setting: 20, found: [sees('vulkan', [lavapipe])], used: `Vulkan on ${lavapipe}, 20 of 33 layers` },
    },
    {
      name: 'layers: a GPU is preferred to a software device',
      setting: 20,
      found: [sees('cuda', [lavapipe]), sees('vulkan', ['Intel Arc'])],
      used: 'Vulkan on Intel Arc, 20 of 33 layers',
    },
    {
      name: 'more layers than the model has',
      ...{ setting: 99, found: [sees('cuda', ['NVIDIA L4'])], used: 'CUDA on NVIDIA L4, 33 of 33 layers' },
    },
    {
      // 4 GB, less 1.6 GiB, and 0.4 to compute in: 1.88 GB are 9 layers of 0.2.
      ...{ name: 'room for a part', setting: 'auto', found: [sees('cuda', ['NVIDIA L4'], 4)] },
      ...{ used: 'CUDA on NVIDIA L4, 9 of 33 layers', why: '2.3 GB are free, which is enough for 9 of 33 layers' },
    },
    {
      ...{ name: 'room for fewer layers than asked for', setting: 20, found: [sees('cuda', ['NVIDIA L4'], 4)] },
      ...{ used: 'CUDA on NVIDIA L4, 9 of 33 layers', why: '2.3 GB are free, which is enough for 9 of 20 layers' },
    },
    {
      ...{ name: 'room for what was asked for', setting: 9, found: [sees('cuda', ['NVIDIA L4'], 4)] },
      used: 'CUDA on NVIDIA L4, 9 of 33 layers',
    },
    {
      ...{ name: 'a full GPU', setting: 'auto', found: [sees('cuda', ['NVIDIA L4'], 2)], used: 'the processor' },
      why: '283 MB of the memory of NVIDIA L4 are free, too little for a layer of 200 MB and 400 MB to compute in',
    },
    {
      name: 'two GPUs',
      setting: 'auto',
      found: [sees('cuda', ['NVIDIA L4', 'NVIDIA T4'])],
      used: 'CUDA on NVIDIA L4 and NVIDIA T4, 33 of 33 layers',
    },
  ];
  for (const { name, setting, found, used, why } of table)
    test(name, () => {
      const compute = chooseCompute(setting, found, needs);
      assert.equal(computeInWords(compute), used);
      assert.equal(compute.reason, why);
    });

  test('only what nobody asked for is expected of the processor', () => {
    const expected = (setting: GpuSetting, found: readonly FoundGpu[]): boolean => {
      const compute = chooseCompute(setting, found, needs);
      return compute.on === 'processor' && compute.isExpected;
    };
    assert.ok(expected('auto', []));
    assert.ok(expected('off', [sees('cuda', ['NVIDIA L4'])]));
    assert.ok(!expected(20, []));
    assert.ok(!expected('auto', [sees('vulkan', [])]));
  });

  test('what GPUs take in place of the computer’s memory', () => {
    const left = 24e9 - 1.6 * 2 ** 30;
    assert.equal(gpuRoom([]), 0);
    assert.equal(
      gpuRoom([sees('cuda', ['NVIDIA L4']), sees('vulkan', ['NVIDIA L4']), fails('metal', 'no')]),
      Math.floor(left),
    );
    assert.equal(gpuRoom([sees('vulkan', [lavapipe])]), 0);
    assert.equal(gpuRoom([{ build: buildOf('metal'), devices: devices(['Apple M4'], 24, true) }]), 0);
  });

  test('the memory of a device is given once', () => {
    const found = [sees('cuda', ['NVIDIA L4'], 12)];
    const first = chooseCompute('auto', found, needs);
    assert.ok(first.on === 'gpu');
    assert.deepEqual([first.layers, first.bytes], [33, 7 * gb]);
    const second = chooseCompute('auto', found, needs, first.bytes);
    assert.ok(second.on === 'gpu');
    assert.equal(second.layers, 14);
    assert.equal(chooseCompute('auto', found, needs, first.bytes + second.bytes).on, 'processor');
  });

  test('never more than fits, than there is or than was asked for', () => {
    fc.assert(
      fc.property(
        fc.record({ layers: fc.integer({ min: 1, max: 200 }), bytes: fc.nat(1e12), stepBytes: fc.nat(1e10) }),
        fc.record({
          free: fc.nat(2e11),
          others: fc.nat(2e11),
          taken: fc.nat(2e11),
          count: fc.integer({ min: 1, max: 8 }),
        }),
        fc.oneof(fc.constant('auto' as const), fc.integer({ min: 1, max: 300 })),
        (model, { free, others, taken, count }, setting) => {
          const names = Array.from({ length: count }, (_, index) => `GPU ${index}`);
          const seen = { names, freeBytes: free, totalBytes: free + others, isUnified: false };
          const compute = chooseCompute(setting, [{ build: buildOf('cuda'), devices: seen }], model, taken);
          if (compute.on === 'processor') return;
          assert.ok(compute.bytes <= Math.max(0, free - taken) + 1);
          assert.ok(compute.layers >= 1 && compute.layers <= model.layers);
          if (setting !== 'auto') assert.ok(compute.layers <= setting);
          assert.equal(compute.layers <= layersThatFit(model, seen, taken), true);
        },
      ),
    );
  });
});

describe('what of a model goes to a GPU', () => {
  const header = {
    ...{ fileBytes: 4_920_000_000, cacheBytesPerToken: 131_072, vocabularySize: 128_256 },
    ...{ shape: { layers: 32, width: 4096, innerWidth: 14_336, heads: 32 }, isCausal: true, pooling: undefined },
  } as const;
  const own = memoryNeedsOf(header, { purpose: 'write', contextLength: 8192, slots: 4 });

  test('a model of 8 billion parameters, four slots of 8,192 tokens', () => {
    const all = layerNeedsOf(header, own);
    assert.equal(all.layers, 33);
    assert.equal(all.bytes, 4_920_000_000 + 4 * 8192 * 131_072);
    // llama.cpp reports 258 MiB to compute in for this model and step; the rest is the driver's.
    assert.equal(all.stepBytes, 512 * 4 * (128_256 + 4 * 4096 + 2 * 14_336) + 200e6);
  });

  test('what a GPU takes is not taken of the computer’s memory, unless it is the same', () => {
    const found = (isUnified: boolean): FoundGpu => ({
      build: buildOf('cuda'),
      devices: devices(['GPU'], 7, isUnified),
    });
    const compute = chooseCompute('auto', [found(false)], layerNeedsOf(header, own));
    assert.ok(compute.on === 'gpu');
    const rest = needsBeside(own, compute);
    const share = 1 - compute.layers / 33;
    assert.ok(compute.layers > 5 && compute.layers < 33);
    assert.equal(rest.fileBytes, Math.ceil(own.fileBytes * share));
    assert.equal(rest.workBytes(4), Math.ceil(own.workBytes(4) * share));
    assert.equal(needsBeside(own, chooseCompute('auto', [found(true)], layerNeedsOf(header, own))), own);
    assert.equal(needsBeside(own, chooseCompute('off', [], layerNeedsOf(header, own))), own);
  });
});

test('software devices by the names that their drivers give them', () => {
  for (const name of [lavapipe, 'SwiftShader Device (LLVM 10.0.0)', 'lavapipe'])
    assert.ok(isSoftwareDevice(name), name);
  for (const name of [
    'NVIDIA L4',
    'AMD Radeon RX 7900 XTX (RADV NAVI31)',
    'Intel(R) Arc(tm) A770 Graphics (DG2)',
    'Apple M4',
  ])
    assert.ok(!isSoftwareDevice(name), name);
});

test('the line about devices among what drivers print', () => {
  const seen = { names: ['NVIDIA L4'], totalBytes: 24, freeBytes: 20, isUnified: false };
  assert.deepEqual(devicesIn(`MESA: warning\n${devicesMark}${JSON.stringify(seen)}\nbye\n`), seen);
  const [name] = devicesIn(
    `${devicesMark}${JSON.stringify({ ...seen, names: [`\u001b[2J${'x'.repeat(500)}`] })}`,
  )!.names;
  assert.equal(name, `?[2J${'x'.repeat(96)}`);
  for (const output of [
    '',
    'devices: {',
    `${devicesMark}{"names":"GPU"}`,
    `${devicesMark}null`,
    `${devicesMark}{"names":[]}`,
  ])
    assert.equal(devicesIn(output), undefined, output);
});

test('an engine gets the variables of drivers and nothing else', () => {
  const all = {
    ...{ GGML_VK_VISIBLE_DEVICES: '0', CUDA_VISIBLE_DEVICES: '1', VK_ICD_FILENAMES: '/icd.json', PATH: '/bin' },
    ...{ UPSTREAM_KEY: 'secret', HF_TOKEN: 'secret', NODE_OPTIONS: '--inspect', LD_PRELOAD: '/x.so', HOME: '/root' },
    GGML_VK_DISABLE_F16: undefined,
  };
  assert.deepEqual(gpuVariablesIn(all), {
    ...{ GGML_VK_VISIBLE_DEVICES: '0', CUDA_VISIBLE_DEVICES: '1', VK_ICD_FILENAMES: '/icd.json', PATH: '/bin' },
  });
});
