import assert from 'node:assert/strict';
import { readdirSync, realpathSync, statSync } from 'node:fs';
import path from 'node:path';
import { it } from 'node:test';
import { root } from '../support/repository.ts';

const modules = realpathSync(path.join(root, 'node_modules'));
/** With what is only for development; what `npm start` installs has its own limit (tests/suites/start). */
const bytesMax = 420_000_000;

it('the installed dependencies, with those for development, stay below 420 MB', () => {
  let bytes = 0;
  for (const entry of readdirSync(modules, { recursive: true, withFileTypes: true })) {
    if (entry.isFile()) bytes += statSync(path.join(entry.parentPath, entry.name)).size;
  }
  assert.ok(bytes > 10_000_000, 'the dependencies are installed; if not: npm start');
  assert.ok(bytes < bytesMax, `${bytes} bytes in node_modules, ${bytesMax} are allowed; npm ls tells what came in`);
});

it('no package for a GPU is installed, and the engine for this computer is', () => {
  const installed = readdirSync(modules, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isDirectory() && entry.parentPath.endsWith(`${path.sep}@node-llama-cpp`))
    .map(({ name }) => name);
  assert.deepEqual(
    installed.filter((name) => /cuda|vulkan|rocm|hip/.test(name)),
    [],
  );
  const platform = { linux: 'linux', darwin: 'mac', win32: 'win' }[process.platform as 'linux' | 'darwin' | 'win32'];
  assert.ok(
    installed.some((name) => name.startsWith(`${platform}-${process.arch}`)),
    `${installed.join(', ') || 'none'}; install with npm start`,
  );
});
