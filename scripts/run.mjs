// Runs a TypeScript file of the repository that is not the program: `node scripts/run.mjs bench/constraints.ts FILE`. The files
// that it starts as separate processes are beside it and have names that end in `-process`. `npm run bench [name]` runs a file of
// bench/: bench/run.ts without a name.
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { buildFiles, buildProgram, dist } from './bundle.mjs';
import { fail, root, setup } from './setup.mjs';

const [first = '', ...rest] = process.argv.slice(2);
const isBench = first === '--bench';
const named = isBench && fs.existsSync(path.join(root, 'bench', `${rest[0]}.ts`));
const file = isBench ? `bench/${named ? rest[0] : 'run'}.ts` : first;
const args = named ? rest.slice(1) : rest;
if (!file.endsWith('.ts') || !fs.existsSync(path.join(root, file)))
  fail('usage: node scripts/run.mjs FILE.ts [arguments], with a path below the repository');
setup();
await buildProgram();
const folder = fs.mkdtempSync(path.join(dist, 'run-'));
// Shared test code finds the program beside it.
fs.symlinkSync(dist, path.join(folder, 'program'), 'junction');
const beside = fs.readdirSync(path.join(root, path.dirname(file))).filter((name) => name.endsWith('-process.ts'));
await buildFiles({
  files: [file, 'src/platform/stack-traces.ts', ...beside.map((name) => path.join(path.dirname(file), name))],
  folder,
  program: dist,
});
const built = path.join(folder, file.replace(/\.ts$/, '.js'));
const child = spawn(
  process.execPath,
  ['--import', pathToFileURL(path.join(folder, 'src/platform/stack-traces.js')).href, built, ...args],
  { stdio: 'inherit' },
);
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => child.kill(signal));
child.on('close', (code) => {
  fs.rmSync(folder, { recursive: true, force: true });
  process.exitCode = code ?? 1;
});
