import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { chmodSync, chownSync, mkdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import type { AddressInfo, Server } from 'node:net';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';

import { scriptedModel, until } from '../support/service.ts';
import type { CommandResult } from '../support/command.ts';
import { CommandFolder, assertNoStack } from './command.ts';
import { mainFile } from '../support/built.ts';

/**
 * What goes wrong at a start or in a command is reported in lines: what, why, and the command that repairs it. Each failure is
 * caused for real, in a process of its own (ux §6.3). Exit codes of sysexits.h: 64 usage, 69 unavailable, 78 configuration.
 */
const model = scriptedModel('- say: [ { text: "hello" } ]');
const anyPorts = 'server: { inference: { port: 0 }, account: { port: 0 } }\n';
const sha256 = 'ab'.repeat(32);

interface Row {
  readonly what: string;
  readonly config?: string;
  readonly environment?: Readonly<Record<string, string>>;
  readonly args?: readonly string[];
  /** Runs instead of the command itself. */
  readonly run?: (folder: CommandFolder) => Promise<CommandResult>;
  readonly prepare?: (folder: CommandFolder) => void;
  readonly code: number;
  readonly says: RegExp;
  readonly why: RegExp;
  readonly repair: RegExp;
}

const rows: readonly Row[] = [
  {
    what: 'an unknown key',
    config: `${anyPorts}modles: []\n`,
    code: 78,
    says: /^tokenhouse\.yaml:2:1: unknown key "modles".*did you mean "models"\?$/m,
    why: /is not used, not even in part/,
    repair: /^\$\{EDITOR:-vi\} \+2 tokenhouse\.yaml && tokenhouse config check tokenhouse\.yaml$/,
  },
  {
    what: 'a secret that can be guessed',
    environment: { TOKENHOUSE_SECRET: 'short' },
    code: 78,
    says: /^TOKENHOUSE_SECRET: has 5 characters/m,
    why: /is not used, not even in part/,
    repair: /^export TOKENHOUSE_SECRET="\$\(openssl rand -hex 32\)"$/,
  },
  {
    what: 'a hub that is no URL',
    environment: { HF_ENDPOINT: 'mirror' },
    code: 78,
    says: /^HF_ENDPOINT: is not a URL/m,
    why: /is not used, not even in part/,
    repair: /^unset HF_ENDPOINT$/,
  },
  {
    what: 'a secret file that is damaged',
    prepare: (folder) => {
      mkdirSync(join(folder.path, 'data'), { mode: 0o700 });
      writeFileSync(join(folder.path, 'data', 'secret'), 'x\n', { mode: 0o600 });
    },
    code: 78,
    says: /secret is shorter than 32 characters/,
    why: /keys are looked up by a hash/,
    repair: /^tokenhouse keys list$/,
  },
  {
    what: 'a file that is not there',
    args: ['serve', '--config', 'nothing.yaml'],
    code: 78,
    says: /^nothing\.yaml: does not exist/m,
    why: /is not used, not even in part/,
    repair: /^tokenhouse init$/,
  },
  {
    what: 'an address of another computer',
    config: `server: { inference: { host: 192.0.2.1, port: 18080 }, account: { port: 0 } }\n${model}`,
    code: 78,
    says: /cannot listen on port 18080 of 192\.0\.2\.1 \(EADDRNOTAVAIL\)/,
    why: /no network interface with that address/,
    repair: /^tokenhouse config show$/,
  },
  {
    what: 'both ports the same on the command line',
    args: ['serve', '--port', '18090', '--account-port', '18090'],
    code: 64,
    says: /^--account-port: both hosts are set to port 18090/m,
    why: /is not used, not even in part/,
    repair: /^tokenhouse serve --help$/,
  },
  {
    what: 'a file that is no database',
    prepare: (folder) => {
      mkdirSync(join(folder.path, 'data'), { mode: 0o700 });
      writeFileSync(join(folder.path, 'data', 'tokenhouse.db'), 'this is a letter, not a database\n'.repeat(200));
    },
    code: 69,
    says: /tokenhouse\.db is not a database/,
    why: /cannot trust its ledger/,
    repair: /^tokenhouse doctor$/,
  },
  {
    what: 'a data folder of somebody else',
    prepare: (folder) => mkdirSync(join(folder.path, 'data'), { mode: 0o555 }),
    run: runWithoutRights,
    code: 69,
    says: /This user cannot write to the data folder .*data/,
    why: /the ledger are kept there/,
    repair: /^sudo chown -R "\$\(id -un\)" data$/,
  },
  {
    what: 'a disk that is full',
    run: runOnFullDisk,
    code: 69,
    says: /The disk of the data folder .*data is full: \d+ bytes are free/,
    why: /nothing was lost/,
    repair: /^df -h data$/,
  },
  {
    what: 'a model file with other bytes',
    config: `${anyPorts}models:
  - id: other
    context_length: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ { engine: llama, sources: [ "file:./model.gguf" ], sha256: ${sha256} } ]\n`,
    environment: { TOKENHOUSE_MODEL_DIR: './models' },
    prepare: (folder) => folder.write('model.gguf', 'other bytes'),
    args: ['models', 'pull', 'other'],
    code: 69,
    says: /is another file: its sha256 is [0-9a-f]{64}, expected (ab){32}/,
    why: /loaded only from a file with the sha256/,
    repair: /^cp \/path\/to\/the\/file\.gguf .*models\/ && tokenhouse models pull$/,
  },
  {
    what: 'no database yet',
    args: ['keys', 'list'],
    code: 1,
    says: /There is no database at .*tokenhouse\.db yet/,
    why: /nothing was changed/,
    repair: /^npm start$/,
  },
];

describe('a failure is reported in words', () => {
  for (const row of rows) {
    test(`${row.what}: exit ${row.code}`, async () => {
      const folder = new CommandFolder(row.config ?? `${anyPorts}${model}`, row.environment);
      try {
        row.prepare?.(folder);
        const result = await (row.run?.(folder) ?? folder.run(...(row.args ?? ['serve'])));
        assert.equal(result.code, row.code, result.stderr);
        assertReported(result.stderr, row);
        // What a service has logged until then are events; everything else that it says is talk.
        for (const line of result.stdout.split('\n').filter((text) => text !== ''))
          assert.match((JSON.parse(line) as { event: string }).event, /^(store|secret|failed)$/);
      } finally {
        chmodSync(folder.path, 0o755);
        folder.dispose();
      }
    });
  }
});

describe('a port that is taken', () => {
  const folder = new CommandFolder();
  after(() => folder.dispose());

  test('is reported with who has it, and the command that is offered works', async () => {
    const holder = await taken();
    const { port } = holder.address() as AddressInfo;
    folder.write('tokenhouse.yaml', `server: { inference: { port: ${port} }, account: { port: 0 } }\n${model}`);
    const result = await folder.run('serve');
    assert.equal(result.code, 69);
    assertReported(result.stderr, {
      says: new RegExp(`^Port ${port} of 127\\.0\\.0\\.1 is taken`, 'm'),
      why: process.platform === 'linux' ? new RegExp(`process ${process.pid} \\(.+\\) listens there`) : /listens there/,
      repair: /^tokenhouse serve --port \d+$/,
    });
    const [, repair = ''] = /^ {2}repair {2}tokenhouse (.*)$/m.exec(result.stderr) ?? [];
    const child = spawn(process.execPath, [mainFile, ...repair.split(' ')], {
      cwd: folder.path,
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    let said = '';
    child.stderr.on('data', (text: Buffer) => (said += text.toString()));
    await until(() => child.exitCode !== null || /Then see what it cost/.test(said), 120_000);
    assert.match(said, new RegExp(`API +http://localhost:${repair.split(' ').at(-1)}/v1`));
    child.kill('SIGTERM');
    await new Promise((resolve) => child.on('close', resolve));
    await new Promise<void>((resolve) => holder.close(() => resolve()));
  });

  test('is also an event of the log, with the same words', async () => {
    const holder = await taken();
    const { port } = holder.address() as AddressInfo;
    folder.write('tokenhouse.yaml', `server: { account: { port: ${port} }, inference: { port: 0 } }\n${model}`);
    const { code, stdout, stderr } = await folder.run('serve');
    assert.equal(code, 69);
    const events = stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, string | number>);
    const failed = events.find(({ event }) => event === 'failed');
    assert.equal(failed?.['exit_code'], 69);
    assert.match(String(failed['error']), new RegExp(`Port ${port}`));
    assert.match(String(failed['repair']), /^tokenhouse serve --account-port \d+$/);
    for (const words of ['error', 'why', 'repair']) assert.ok(stderr.includes(String(failed[words])), words);
    await new Promise<void>((resolve) => holder.close(() => resolve()));
  });
});

function taken(): Promise<Server> {
  const server = createServer();
  return new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(server)));
}

/** Lines of what, one why, one command. */
function assertReported(stderr: string, expected: Pick<Row, 'says' | 'why' | 'repair'>): void {
  const lines = stderr.trimEnd().split('\n');
  const whys = lines.filter((line) => line.startsWith('  why     '));
  const repairs = lines.filter((line) => line.startsWith('  repair  '));
  assert.deepEqual([whys.length, repairs.length], [1, 1], stderr);
  assert.match(stderr, expected.says);
  assert.match(whys[0]!.slice(10), expected.why);
  assert.match(repairs[0]!.slice(10), expected.repair);
  assertNoStack(stderr);
}

/** As a user who owns nothing here. */
async function runWithoutRights(folder: CommandFolder): Promise<CommandResult> {
  assert.notEqual(process.platform, 'win32', 'this test needs folders with modes; run it on Linux or macOS');
  chmodSync(folder.path, 0o755);
  if (process.getuid?.() !== 0) return await folder.run('serve');
  chownSync(join(folder.path, 'data'), 0, 0);
  return await ended(
    // It gives its rights away itself: this very Node may lie in a folder that only root may look into.
    spawn(process.execPath, ['--import', withoutRights, mainFile, 'serve'], {
      cwd: folder.path,
      env: { ...process.env, HOME: '/nonexistent' },
      stdio: ['ignore', 'pipe', 'pipe'],
    }),
  );
}

const withoutRights = 'data:text/javascript,process.setgroups([]);process.setgid(65534);process.setuid(65534);';

/** The data folder is a file system of its own, of which every byte is taken. */
async function runOnFullDisk(folder: CommandFolder): Promise<CommandResult> {
  mkdirSync(join(folder.path, 'data'), { mode: 0o700 });
  const script = 'mount -t tmpfs -o size=256k tmpfs data && { cat /dev/zero > data/ballast 2>/dev/null; exec "$@"; }';
  const result = await ended(
    spawn('unshare', ['-rm', 'sh', '-c', script, 'sh', process.execPath, mainFile, 'serve'], {
      cwd: folder.path,
      stdio: ['ignore', 'pipe', 'pipe'],
    }),
  );
  assert.doesNotMatch(
    result.stderr,
    /unshare|mount:/,
    'this test needs a Linux that lets this user mount a tmpfs in a namespace of its own (unshare -rm)',
  );
  return result;
}

function ended(child: ReturnType<typeof spawn>): Promise<CommandResult> {
  let stdout = '';
  let stderr = '';
  child.stdout?.on('data', (text: Buffer) => (stdout += text.toString()));
  child.stderr?.on('data', (text: Buffer) => (stderr += text.toString()));
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code) => resolve({ code, stdout, stderr }));
  });
}
