/** The release of node-llama-cpp that the engine is built with; its GPU builds must be of the same release. */
export const engineVersion = '3.21.1';

/** Builds that can be installed. The Metal build comes with the program. */
export const installableKinds = ['cuda', 'vulkan'] as const;
export type InstallableKind = (typeof installableKinds)[number];

export interface BuildPackage {
  readonly name: string;
  /** The integrity hash as npm states it. Anything else that a registry has under this name is rejected. */
  readonly integrity: string;
  /** Sizes of the archive and of its content. */
  readonly packedBytes: number;
  readonly bytes: number;
}

export interface BuildForPlatform {
  readonly kind: InstallableKind;
  readonly os: NodeJS.Platform;
  readonly cpu: NodeJS.Architecture;
  /** Name of the folder of binaries in each package. */
  readonly binaries: string;
  /** The first has the engine; the second, if any, has binaries for older GPUs. */
  readonly packages: readonly [BuildPackage, ...BuildPackage[]];
}

/** All existing builds. A new release changes all of them; `npm view NAME@VERSION dist` states the hash. */
export const buildsForPlatforms: readonly BuildForPlatform[] = [
  {
    ...{ kind: 'vulkan', os: 'linux', cpu: 'x64', binaries: 'linux-x64-vulkan' },
    packages: [
      {
        name: '@node-llama-cpp/linux-x64-vulkan',
        integrity: 'sha512-flEeSzONQ6OIm5bYKLQf4eEnBzcC5WugFbyPUwkCqyyOFZ8pH0H9ulQ7ZNDLSIczeKneMRJornlyY1Hq7d3GDA==',
        packedBytes: 27_476_121,
        bytes: 84_483_299,
      },
    ],
  },
  {
    ...{ kind: 'cuda', os: 'linux', cpu: 'x64', binaries: 'linux-x64-cuda' },
    packages: [
      {
        name: '@node-llama-cpp/linux-x64-cuda',
        integrity: 'sha512-idsE55VoD/FbvLhnBC9krUJaUoC0XnebseAAnCpm/brKf61HEbu+idgbb5eN6mxkjLSrHtILprJ0nDcUJjVrFg==',
        packedBytes: 142_850_036,
        bytes: 188_693_843,
      },
      {
        name: '@node-llama-cpp/linux-x64-cuda-ext',
        integrity: 'sha512-1PuURowccBcks3CCoMe1mTHh5vD0V5bFHMUEgtbI/OSDjpP+Pdbn+lf42CGUrepTzR8kCH1HovQ7d8q6/vuIKA==',
        packedBytes: 176_679_086,
        bytes: 374_197_990,
      },
    ],
  },
  {
    ...{ kind: 'vulkan', os: 'win32', cpu: 'x64', binaries: 'win-x64-vulkan' },
    packages: [
      {
        name: '@node-llama-cpp/win-x64-vulkan',
        integrity: 'sha512-HJ237Azh5m4Sz+w3A1IU/fYLaSDOocskcfn2ILTgqTuuORCB86EMnu3Yt/XsNhRHTtEiwz1Q/E0mO4PLIbZLAA==',
        packedBytes: 26_619_567,
        bytes: 103_426_656,
      },
    ],
  },
  {
    ...{ kind: 'cuda', os: 'win32', cpu: 'x64', binaries: 'win-x64-cuda' },
    packages: [
      {
        name: '@node-llama-cpp/win-x64-cuda',
        integrity: 'sha512-PLz70neFEMkQTlmJqG1ujUtCSgHasLPMxQ9rLkqQVmZYAXqkRj+45TIHCjdn3XqUeaoun0vrO9rRaxZ8NVq9jg==',
        packedBytes: 138_542_727,
        bytes: 175_510_346,
      },
      {
        name: '@node-llama-cpp/win-x64-cuda-ext',
        integrity: 'sha512-L2MxLVEYPDDe4O8EDWPmX6brldc9+Vt9hNoT/anj3pSnmrjkQcmaoKhHs6oP5qhEhb5Uog0rj6lgzNGtJO3p9Q==',
        packedBytes: 175_417_684,
        bytes: 367_830_717,
      },
    ],
  },
];

export const buildFor = (
  kind: InstallableKind,
  os: NodeJS.Platform,
  cpu: NodeJS.Architecture,
): BuildForPlatform | undefined =>
  buildsForPlatforms.find((build) => build.kind === kind && build.os === os && build.cpu === cpu);
