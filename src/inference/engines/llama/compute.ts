/** Kinds of llama.cpp builds for GPUs; the first is preferred where several find a device. */
export const gpuKinds = ['metal', 'cuda', 'vulkan'] as const;
export type GpuKind = (typeof gpuKinds)[number];

/** A build of llama.cpp that can use GPUs. */
export interface GpuBuild {
  readonly kind: GpuKind;
  /** The folder of its binaries; `undefined` for the Mac build, which the package for that platform contains. */
  readonly folder: string | undefined;
  /** A folder of additional binaries, for older GPUs. */
  readonly furtherFolder: string | undefined;
}

/** A build, and what is loaded with it. */
export interface GpuUse extends GpuBuild {
  /** Layers of the model on the build's devices. */
  readonly layers: number;
}

/** `auto`: as much as fits, on a real GPU. A number: that many layers, also on a software device. */
export type GpuSetting = 'auto' | 'off' | number;

/** The devices that a build finds on this computer. */
export interface GpuDevices {
  /** One name per device; empty: the driver has no device for this build. */
  readonly names: readonly string[];
  /** Memory of all devices together. */
  readonly totalBytes: number;
  readonly freeBytes: number;
  /** Whether it is the computer's own memory. */
  readonly isUnified: boolean;
}

export type FoundGpu = { readonly build: GpuBuild } & ({ readonly devices: GpuDevices } | { readonly problem: string });

/** Memory that moves to the devices with a model's layers. */
export interface LayerNeeds {
  /** The model's layers, and one for what comes after them. */
  readonly layers: number;
  /** Weights and caches of all layers. */
  readonly bytes: number;
  /** Working memory for one step on each device. */
  readonly stepBytes: number;
}

/** What a model is computed on. */
export type Compute =
  | {
      readonly on: 'gpu';
      readonly build: GpuBuild;
      readonly devices: readonly string[];
      readonly isUnified: boolean;
      readonly layers: number;
      readonly layersMax: number;
      /** Memory taken on the devices. */
      readonly bytes: number;
      /** Why fewer layers are used than requested. */
      readonly reason?: string;
    }
  /** `isExpected`: nothing else was requested. */
  | { readonly on: 'processor'; readonly reason: string; readonly isExpected: boolean };

/**
 * Decides what a model is computed on, from the builds and devices found. `takenBytes` of the devices' memory are promised to other models.
 * This decision is made nowhere else, and nothing is loaded to make it.
 */
export function chooseCompute(
  setting: GpuSetting,
  found: readonly FoundGpu[],
  needs: LayerNeeds,
  takenBytes = 0,
): Compute {
  if (setting === 'off') return processor('gpu is off', true);
  if (found.length === 0) return processor('no build of llama.cpp for a GPU is installed', setting === 'auto');
  const inOrder = found.toSorted((a, b) => gpuKinds.indexOf(a.build.kind) - gpuKinds.indexOf(b.build.kind));
  const usable = inOrder.flatMap((each) => ('devices' in each && each.devices.names.length > 0 ? [each] : []));
  const real = usable.find(({ devices }) => !devices.names.every(isSoftwareDevice));
  const chosen = real ?? (setting === 'auto' ? undefined : usable[0]);
  if (chosen === undefined)
    return processor(usable[0] === undefined ? inOrder.map(whyNot).join('; ') : softwareOnly(usable[0].devices.names));
  const { build, devices } = chosen;
  const fitting = layersThatFit(needs, devices, takenBytes);
  const wanted = setting === 'auto' ? needs.layers : Math.min(setting, needs.layers);
  const layers = Math.min(wanted, fitting);
  if (layers === 0)
    return processor(
      `${inWords(freeOf(devices, takenBytes))} of the memory of ${devices.names.join(', ')} are free, too little for a layer of ${inWords(bytesOfLayers(needs, 1))} and ${inWords(needs.stepBytes)} to compute in`,
    );
  return {
    ...{ on: 'gpu', build, devices: devices.names, isUnified: devices.isUnified, layers, layersMax: needs.layers },
    bytes: bytesOfLayers(needs, layers) + needs.stepBytes * devices.names.length,
    ...(layers < wanted
      ? {
          reason: `${inWords(freeOf(devices, takenBytes))} are free, which is enough for ${layers} of ${wanted} layers`,
        }
      : {}),
  };
}

/** Returns whether a device is a Vulkan driver that computes on the processor, which is slower than the engine's own processor code. */
export const isSoftwareDevice = (name: string): boolean => /\b(llvmpipe|lavapipe|softpipe|swiftshader)\b/i.test(name);

/** Returns how many bytes of models GPUs can hold instead of the computer's memory. Several builds may see the same devices. */
export const gpuRoom = (found: readonly FoundGpu[]): number =>
  Math.max(
    0,
    ...found.flatMap((seen) =>
      'devices' in seen && !seen.devices.isUnified && !seen.devices.names.every(isSoftwareDevice)
        ? [freeOf(seen.devices, 0)]
        : [],
    ),
  );

/** Returns how many layers fit. Whole layers are divided between devices, each of which needs room for a step. */
export function layersThatFit(needs: LayerNeeds, devices: GpuDevices, takenBytes: number): number {
  const free = freeOf(devices, takenBytes) - needs.stepBytes * devices.names.length;
  if (free < 0) return 0;
  return needs.bytes === 0 ? needs.layers : Math.min(needs.layers, Math.floor((free * needs.layers) / needs.bytes));
}

/**
 * Free memory, minus a reserve for the driver and other programs. node-llama-cpp, which checks again before it loads, reserves the same
 * amount.
 */
const freeOf = ({ freeBytes, totalBytes }: GpuDevices, takenBytes: number): number =>
  Math.max(0, Math.floor(freeBytes - Math.min(totalBytes * 0.08, 1.6 * 2 ** 30) - takenBytes));

const bytesOfLayers = ({ bytes, layers }: LayerNeeds, count: number): number => Math.ceil((bytes * count) / layers);

const processor = (reason: string, isExpected = false): Compute => ({ on: 'processor', reason, isExpected });

const softwareOnly = (names: readonly string[]): string =>
  `${names.join(', ')} computes with the processor, and is used only where gpu is a number of layers`;

const whyNot = (found: FoundGpu): string =>
  'problem' in found
    ? `the build for ${kindInWords(found.build.kind)} cannot be used: ${found.problem}`
    : `the build for ${kindInWords(found.build.kind)} finds no device`;

const kindNames = { metal: 'Metal', cuda: 'CUDA', vulkan: 'Vulkan' } as const;

export const kindInWords = (kind: GpuKind): string => kindNames[kind];

/** "CUDA on NVIDIA L4, 33 of 33 layers", or "the processor". */
export const computeInWords = (compute: Compute): string =>
  compute.on === 'processor'
    ? 'the processor'
    : `${kindInWords(compute.build.kind)} on ${compute.devices.join(' and ')}, ${compute.layers} of ${compute.layersMax} layers`;

function inWords(bytes: number): string {
  return bytes >= 1e9 ? `${(bytes / 1e9).toFixed(1)} GB` : `${Math.ceil(bytes / 1e6)} MB`;
}
