// `npm run check [types|lint|format…]`: checks types, lint and format at the same time; prints the output of each when it has
// ended. `npm run check -- --fix` writes instead: it formats every file, and writes the parts of docs/ that the program prints.
import { spawn } from 'node:child_process';
import path from 'node:path';
import { writeAccountClient } from './account-client.mjs';
import { prepareConsole } from './console-types.mjs';
import { fail, root, setup } from './setup.mjs';

const checks = {
  types: [
    'node node_modules/typescript-7/bin/tsc -p .',
    'node node_modules/typescript-7/bin/tsc -p tests/clients',
    'node scripts/console-types.mjs',
  ],
  lint: ['oxlint --type-aware'],
  format: ['prettier --check .'],
};
const words = process.argv.slice(2);
const unknown = words.find((word) => !Object.hasOwn(checks, word) && word !== '--fix');
if (unknown !== undefined) fail(`npm run check knows ${Object.keys(checks).join(', ')} and --fix, not '${unknown}'.`);

setup();
const passed = words.includes('--fix') ? await fix() : await check(words.length > 0 ? words : Object.keys(checks));
process.exitCode = passed ? 0 : 1;

async function check(names) {
  await writeAccountClient();
  await prepareConsole();
  return (await Promise.all(names.map((name) => run(name, checks[name])))).every(Boolean);
}

const fix = async () => await run('fix', ['prettier --write --log-level=warn .', 'node scripts/docs.mjs']);

/** Runs installed programs, one command after the other, until one fails. */
async function run(name, commands) {
  const command = commands.join(' && ');
  const PATH = `${path.join(root, 'node_modules', '.bin')}${path.delimiter}${process.env.PATH}`;
  const env = { ...process.env, PATH };
  const child = spawn(command, { cwd: root, shell: true, env, stdio: ['ignore', 'pipe', 'pipe'] });
  const pieces = [];
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (piece) => pieces.push(piece));
  const code = await new Promise((resolve) => child.on('close', resolve).on('error', () => resolve(1)));
  process.stdout.write(`${name}: ${code === 0 ? 'passed' : 'FAILED'}\n${Buffer.concat(pieces)}`);
  return code === 0;
}
