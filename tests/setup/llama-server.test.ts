/** `scripts/llama-server.mjs`: where it finds a llama-server, and how it builds one; the tools are stand-ins. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';

import { until } from '../support/service.ts';
import { inRepository } from '../support/repository.ts';

const script = inRepository('scripts/llama-server.mjs');
const skip = process.platform === 'win32' ? 'the stand-ins are shell scripts' : false;

let folder = '';
let tools = '';
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tokenhouse-llama-server-'));
  tools = join(folder, 'tools');
  mkdirSync(tools);
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

/** A program that does what the lines say. */
function program(name: string, lines: string, where = tools): string {
  const file = join(where, name);
  writeFileSync(file, `#!/bin/sh\nPATH=/usr/local/bin:/usr/bin:/bin\n${lines}\n`);
  chmodSync(file, 0o755);
  return file;
}

const answers = 'exit 0';

/** git and cmake that leave behind what a build leaves behind; each build is noted. `configuring` comes before it, with the arguments. */
function standIns(building = 'sleep 0.3', configuring = ''): void {
  program('git', 'for last; do :; done; mkdir -p "$last"; echo MIT > "$last/LICENSE"');
  program('c++', answers);
  program(
    'cmake',
    `[ "$1" = --build ] || {
${configuring}
mkdir -p "$4"; exit 0; }
echo build >> '${folder}/builds'
${building}
mkdir -p "$2/bin"
printf '#!/bin/sh\\nexit 0\\n' > "$2/bin/llama-server"
chmod 755 "$2/bin/llama-server"`,
  );
}

function start(environment: Readonly<Record<string, string>> = {}, args: readonly string[] = []) {
  const { LLAMA_SERVER: _, ...variables } = process.env;
  const child = spawn(process.execPath, [script, ...args], {
    env: { ...variables, PATH: tools, TOKENHOUSE_MODEL_DIR: join(folder, 'cache', 'models'), ...environment },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let stdout = '';
  let stderr = '';
  child.stdout.on('data', (bytes: Buffer) => (stdout += bytes.toString()));
  child.stderr.on('data', (bytes: Buffer) => (stderr += bytes.toString()));
  const ended = new Promise<{ code: number | null; path: string; lines: readonly string[] }>((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code) =>
      resolve({ code, path: stdout.trim(), lines: stderr.split('\n').filter((line) => line !== '') }),
    );
  });
  return { child, ended };
}

const run = (environment?: Readonly<Record<string, string>>, ...args: string[]) => start(environment, args).ended;
const builds = (): number =>
  existsSync(join(folder, 'builds')) ? readFileSync(join(folder, 'builds'), 'utf8').trim().split('\n').length : 0;
const cached = (): readonly string[] => (existsSync(join(folder, 'cache')) ? readdirSync(join(folder, 'cache')) : []);

test('takes what LLAMA_SERVER names', { skip }, async () => {
  const mine = program('mine', answers, folder);
  program('llama-server', answers);
  assert.deepEqual(await run({ LLAMA_SERVER: mine }), { code: 0, path: mine, lines: [] });
});

test('says so when that does not run: 69, one line', { skip }, async () => {
  const broken = program('broken', 'exit 3', folder);
  for (const named of [broken, join(folder, 'nothing')]) {
    const { code, path, lines } = await run({ LLAMA_SERVER: named });
    assert.deepEqual([code, path, lines.length], [69, '', 1]);
    assert.ok(lines[0]?.includes(named));
  }
});

test('takes the one on the PATH that runs', { skip }, async () => {
  const file = program('llama-server', answers);
  assert.deepEqual(await run(), { code: 0, path: file, lines: [] });
});

test(
  'without the tools to build one: 69, and one line says what is missing and what installs it',
  { skip },
  async () => {
    const { code, path, lines } = await run();
    assert.deepEqual([code, path, lines.length], [69, '', 1]);
    assert.match(lines[0] ?? '', /git and cmake and a C\+\+ compiler/);
    assert.match(
      lines[0] ?? '',
      process.platform === 'darwin' ? /brew install cmake/ : /apt-get install -y git cmake g\+\+/,
    );
    assert.deepEqual(cached(), []);
  },
);

test('builds once, also when two start at the same time, and then finds it', { skip }, async () => {
  standIns();
  const [first, second] = await Promise.all([run(), run()]);
  assert.deepEqual([first.code, second.code], [0, 0], [...first.lines, ...second.lines].join('\n'));
  assert.equal(first.path, second.path);
  assert.ok(existsSync(first.path));
  assert.equal(builds(), 1);
  const third = await run();
  assert.deepEqual(third, { code: 0, path: first.path, lines: [] });
  assert.equal(builds(), 1);
  assert.equal(cached().length, 1, 'no lock and no folder of the build is left');
});

test('the server alone is compiled, and lies beside the libraries that node-llama-cpp carries', { skip }, async () => {
  standIns('true', `[ "$2" = '${inRepository('scripts/llama-server')}' ] || exit 3`);
  const { code, path, lines } = await run();
  assert.equal(code, 0, lines.join('\n'));
  const names = readdirSync(dirname(path));
  for (const wanted of [/llama-common/, /ggml-base/, /ggml-cpu/, /^LICENSE$/])
    assert.ok(
      names.some((name) => wanted.test(name)),
      `${wanted} is in ${names.join(', ')}`,
    );
});

test('everything is compiled where the libraries cannot be used, once, and with --full', { skip }, async () => {
  const alone = `[ "$2" = '${inRepository('scripts/llama-server')}' ]`;
  standIns('true', `if ${alone}; then echo no such symbol; exit 2; fi`);
  const first = await run();
  assert.equal(first.code, 0, first.lines.join('\n'));
  assert.ok(first.lines.some((line) => /cannot use the libraries .*: cmake ended with code 2/.test(line)));
  assert.deepEqual(readdirSync(dirname(first.path)), ['LICENSE', 'build.json', 'llama-server']);
  assert.deepEqual(await run(), { code: 0, path: first.path, lines: [] });
  assert.deepEqual(await run({}, '--full'), { code: 0, path: first.path, lines: [] });
  assert.equal(builds(), 1);
});

test('with --full what was compiled alone does not count', { skip }, async () => {
  standIns('true');
  const alone = await run();
  const full = await run({}, '--full');
  assert.deepEqual([alone.code, full.code], [0, 0], full.lines.join('\n'));
  assert.notEqual(full.path, alone.path);
  assert.equal(builds(), 2);
});

test(
  'a build that is killed leaves nothing that is taken for whole, and the next one cleans up',
  { skip },
  async () => {
    standIns(`echo $$ > '${folder}/pid'\nsleep 600`);
    const killed = start();
    await until(() => existsSync(join(folder, 'pid')), 30_000);
    killed.child.kill('SIGKILL');
    await killed.ended.catch(() => {});
    process.kill(-Number(readFileSync(join(folder, 'pid'), 'utf8')), 'SIGKILL');
    standIns();
    const { code, path, lines } = await run();
    assert.equal(code, 0, lines.join('\n'));
    assert.ok(existsSync(path));
    assert.equal(builds(), 2);
    assert.equal(cached().length, 1);
  },
);

test('a build that is stopped takes its compiler along and leaves nothing', { skip }, async () => {
  standIns(`echo $$ > '${folder}/pid'\nsleep 600`);
  const stopped = start();
  await until(() => existsSync(join(folder, 'pid')), 30_000);
  stopped.child.kill('SIGTERM');
  const { code } = await stopped.ended;
  assert.equal(code, 1);
  const pid = Number(readFileSync(join(folder, 'pid'), 'utf8'));
  await until(() => {
    try {
      process.kill(pid, 0);
      return false;
    } catch {
      return true;
    }
  }, 10_000);
  assert.deepEqual(cached(), []);
});

test('a build that fails: 1, with the last words of the tool', { skip }, async () => {
  standIns('echo no such header; exit 2');
  // Both ways.
  const { code, path, lines } = await run();
  assert.deepEqual([code, path], [1, '']);
  assert.ok(lines.some((line) => line.includes('no such header')));
  assert.match(lines.at(-1) ?? '', /could not be built: cmake ended with code 2/);
  assert.deepEqual(cached(), []);
});
