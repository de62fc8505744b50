// The official clients for Python, installed once into an environment of their own among the caches.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { cacheFolder } from '../../../scripts/cache-folder.mjs';
import { say } from '../../../scripts/setup.mjs';

const requirements = fileURLToPath(new URL('requirements.txt', import.meta.url));
const remedy = 'install Python 3.9 or later with its venv module (Debian: apt-get install python3-venv)';

/** `PYTHON_OF_CLIENTS` is the interpreter that has them. */
export function setup() {
  const folder = cacheFolder('python-clients');
  const python = path.join(folder, 'bin', 'python');
  const stamp = path.join(folder, '.installed');
  const wanted = fs.readFileSync(requirements, 'utf8');
  if (!fs.existsSync(stamp) || fs.readFileSync(stamp, 'utf8') !== wanted) {
    say(`python   installing the official clients below ${folder}`);
    run('python3', ['-m', 'venv', '--clear', folder], remedy);
    // What is imported is compiled then, and most of what they carry never is.
    run(
      python,
      ['-m', 'pip', 'install', '--quiet', '--no-compile', '-r', requirements],
      'the Python registry must be reachable',
    );
    fs.writeFileSync(stamp, wanted);
  }
  return { PYTHON_OF_CLIENTS: python };
}

function run(command, args, otherwise) {
  const { status, error } = spawnSync(command, args, { stdio: ['ignore', 2, 2] });
  if (status !== 0)
    throw new Error(`${path.basename(command)} ${args[1]} failed${error ? ` (${error.message})` : ''}: ${otherwise}`);
}
