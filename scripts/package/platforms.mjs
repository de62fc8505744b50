// The packages of native parts, one for each platform. Only data, because the build reads it too.

/** `engine` is the package that llama.cpp's binaries come from; the folder of SQLite's binary uses Node's names. */
export const platforms = [
  { os: 'linux', cpu: 'x64', engine: '@node-llama-cpp/linux-x64' },
  { os: 'linux', cpu: 'arm64', engine: '@node-llama-cpp/linux-arm64' },
  { os: 'darwin', cpu: 'arm64', engine: '@node-llama-cpp/mac-arm64-metal' },
  { os: 'darwin', cpu: 'x64', engine: '@node-llama-cpp/mac-x64' },
  { os: 'win32', cpu: 'x64', engine: '@node-llama-cpp/win-x64' },
  { os: 'win32', cpu: 'arm64', engine: '@node-llama-cpp/win-arm64' },
].map((platform) => ({ ...platform, name: `@tokenhouse/${platform.os}-${platform.cpu}` }));
