// `npm run check`: types, lint and format at the same time; what each has printed comes when it has ended.
import { spawn } from 'node:child_process';
import { writeAccountClient } from './account-client.mjs';
import { prepareConsole } from './console-types.mjs';
import { root, setup } from './setup.mjs';

setup();
await writeAccountClient();
await prepareConsole();
const passed = await Promise.all(['check:types', 'check:lint', 'check:format'].map(run));
process.exitCode = passed.every(Boolean) ? 0 : 1;

async function run(name) {
  const child = spawn('npm', ['run', '--silent', name], { cwd: root, stdio: ['ignore', 'pipe', 'pipe'] });
  const pieces = [];
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (piece) => pieces.push(piece));
  const code = await new Promise((resolve) => child.on('close', resolve).on('error', () => resolve(1)));
  process.stdout.write(`${name}: ${code === 0 ? 'passed' : 'FAILED'}\n${Buffer.concat(pieces)}`);
  return code === 0;
}
