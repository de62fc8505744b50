/**
 * The service's environment variables that an engine's process gets: which GPUs there are, and where their drivers' libraries are. All
 * others are withheld.
 */
const names: ReadonlySet<string> = new Set([
  // Search paths for libraries that do not come with the build: the CUDA runtime, drivers.
  ...['LD_LIBRARY_PATH', 'PATH', 'CUDA_PATH', 'XDG_DATA_DIRS'],
  // The Vulkan loader: which drivers, and which devices in which order.
  ...[
    'VK_DRIVER_FILES',
    'VK_ADD_DRIVER_FILES',
    'VK_ICD_FILENAMES',
    'VK_LOADER_DRIVERS_SELECT',
    'VK_LOADER_DRIVERS_DISABLE',
  ],
  ...['MESA_VK_DEVICE_SELECT', 'DRI_PRIME', 'AMD_VULKAN_ICD', 'LP_NUM_THREADS'],
  // CUDA: which devices in which order, and its cache of compiled code.
  ...[
    'CUDA_VISIBLE_DEVICES',
    'CUDA_DEVICE_ORDER',
    'CUDA_CACHE_PATH',
    'NVIDIA_VISIBLE_DEVICES',
    'NVIDIA_DRIVER_CAPABILITIES',
  ],
  // ggml: which devices, and which of their features not to use.
  ...['GGML_VK_VISIBLE_DEVICES', 'GGML_VK_PREFER_HOST_MEMORY', 'GGML_VK_DISABLE_COOPMAT', 'GGML_VK_DISABLE_COOPMAT2'],
  ...['GGML_VK_DISABLE_F16', 'GGML_VK_DISABLE_INTEGER_DOT_PRODUCT', 'GGML_VK_DISABLE_HOST_VISIBLE_VIDMEM'],
  ...['GGML_VK_FORCE_MAX_ALLOCATION_SIZE', 'GGML_VK_SUBALLOCATION_BLOCK_SIZE', 'GGML_VK_ALLOW_SYSMEM_FALLBACK'],
  ...['GGML_CUDA_ENABLE_UNIFIED_MEMORY', 'GGML_CUDA_DISABLE_GRAPHS', 'GGML_CUDA_NO_PINNED'],
  ...['GGML_METAL_NO_RESIDENCY', 'GGML_METAL_FUSION_DISABLE', 'GGML_METAL_CONCURRENCY_DISABLE'],
]);

export const gpuVariablesIn = (
  variables: Readonly<Record<string, string | undefined>>,
): Readonly<Record<string, string>> =>
  Object.fromEntries(
    Object.entries(variables).filter(
      (entry): entry is [string, string] => names.has(entry[0].toUpperCase()) && entry[1] !== undefined,
    ),
  );
