// Run before the tests of this folder: Ollama from its Go module, which compiles llama.cpp for a quarter of an hour the first time.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { cacheFolder } from '../../../scripts/cache-folder.mjs';
import { goProgram } from '../../../scripts/go-program.mjs';
import { bundle } from '../../../scripts/llama-server.mjs';

export const setup = () =>
  goProgram({
    name: 'ollama',
    package: 'github.com/ollama/ollama',
    version: 'v0.17.4',
    go: '1.24',
    variable: 'OLLAMA',
    proof: ['--version'],
    environment: () => ({ CGO_ENABLED: '1', CGO_CPPFLAGS: `-I${headers()}` }),
  });

/** What llama.cpp takes from others. A Go module has no folder that is called `vendor`, so these are missing in Ollama's. */
function headers() {
  const source = path.join(cacheFolder('ollama-headers'), 'source');
  fs.rmSync(source, { recursive: true, force: true });
  if (spawnSync('git', ['clone', '--quiet', bundle, source], { stdio: ['ignore', 2, 2] }).status !== 0)
    throw new Error('the source of llama.cpp could not be unpacked: run npm ci --ignore-scripts, and install git');
  return path.join(source, 'vendor');
}
