import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import {
  chmodSync,
  closeSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { DatabaseSync } from '@photostructure/sqlite';

import { lookAtMemory } from '../../src/cli/doctor/models.ts';
import { lookAtClock, lookAtNode } from '../../src/cli/doctor/system.ts';
import type { Finding } from '../../src/cli/doctor/finding.ts';
import { InnerService, TestService, scriptedModel, until } from '../support/service.ts';
import { writeTinyGguf } from '../support/tiny-gguf.ts';
import { CommandFolder, runCommand } from './command.ts';
import { mainFile } from '../support/built.ts';
import { sha256Of } from '../support/folder.ts';

/** `tokenhouse doctor` finds what is wrong, beside a running service and without one. Each fault is real. */
const service = new TestService({ config: scriptedModel('- say: [ { text: "hello" } ]') });
const copies = mkdtempSync(join(tmpdir(), 'tokenhouse-doctor-'));
before(async () => {
  await service.start();
  for (let count = 0; count < 3; count++)
    await service.chat({ model: 'demo', messages: [{ role: 'user', content: 'hi' }] });
});
after(async () => {
  await service.dispose();
  rmSync(copies, { recursive: true, force: true });
});

interface Report {
  readonly code: number | null;
  readonly ok: boolean;
  readonly checks: readonly Finding[];
}

async function doctor(folder: string, environment?: Readonly<Record<string, string>>): Promise<Report> {
  const { code, stdout, stderr } = await runCommand(folder, ['doctor', '--json'], environment);
  assert.notEqual(stdout, '', stderr);
  const report = JSON.parse(stdout) as Omit<Report, 'code'>;
  assert.equal(code, report.ok ? 0 : 1);
  assertComplete(report.checks);
  return { code, ...report };
}

/** What is not well says why, and what repairs it. */
function assertComplete(checks: readonly Finding[]): void {
  for (const { state, why, repair, check } of checks) {
    if (state === 'ok') continue;
    assert.ok(why !== undefined && why !== '', check);
    assert.ok(repair !== undefined && repair !== '', check);
  }
}

const found = ({ checks }: Report, check: string): Finding | undefined => checks.find((each) => each.check === check);
const problemsOf = ({ checks }: Report): readonly string[] =>
  checks.filter(({ state }) => state === 'problem').map(({ check }) => check);

test('beside a running service no problems found', async () => {
  const report = await doctor(service.folder);
  assert.deepEqual(problemsOf(report), []);
  assert.match(found(report, 'service')?.found ?? '', new RegExp(`^running · process ${service.pid} · \\d`));
  assert.match(found(report, 'ledger')?.found ?? '', /^right: \d+ accounts?, \d+ transfers?, 3 requests$/);
  assert.equal(found(report, 'schema')?.found, 'up to date');
  const names = report.checks.map(({ check }) => check);
  for (const name of [
    'node',
    'open files',
    'configuration',
    'data',
    'model folder',
    'secret',
    'port',
    'database',
    'clock',
  ])
    assert.ok(names.includes(name), name);
});

test('in an empty folder too, in words', async () => {
  const folder = new CommandFolder(
    `server: { inference: { port: 0 }, account: { port: 0 } }\n${scriptedModel('- say: [ { text: a } ]')}`,
  );
  const { code, stdout, stderr } = await folder.run('doctor');
  assert.equal(code, 0, stdout);
  assert.match(stdout, /^ok {7}service {8}not running on this data folder \(npm start\)$/m);
  assert.match(stdout, /^ok {7}database {7}.*\(will be created\)$/m);
  assert.match(stderr, /no problems found|0 problems/);
  folder.dispose();
});

describe('finds', () => {
  /** A copy of the stopped service's folder. */
  const copy = (name: string): string => {
    const folder = join(copies, name);
    cpSync(service.folder, folder, { recursive: true, filter: (file) => !file.endsWith('.sock') });
    return folder;
  };
  const change = (folder: string, ...statements: readonly string[]): void => {
    const database = new DatabaseSync(join(folder, 'data', 'tokenhouse.db'));
    for (const statement of statements) database.exec(statement);
    database.close();
  };
  before(async () => {
    assert.equal(await service.stop(), 0);
  });

  test('nothing in an untouched copy', async () => {
    const report = await doctor(copy('untouched'));
    assert.deepEqual(problemsOf(report), []);
    assert.match(found(report, 'service')?.found ?? '', /^not running/);
  });

  test('a balance that is not what its rows say', async () => {
    const folder = copy('ledger');
    change(folder, "update account set available = available + 1 where id like 'acct%'");
    const report = await doctor(folder);
    assert.deepEqual(problemsOf(report), ['ledger']);
    assert.equal(found(report, 'ledger')?.repair, 'tokenhouse ledger verify');
  });

  test('a database of a newer version', async () => {
    const folder = copy('newer');
    change(folder, "insert into kysely_migration (name, timestamp) values ('999-future', '2027')");
    const report = await doctor(folder);
    assert.deepEqual(problemsOf(report), ['schema']);
    assert.match(found(report, 'schema')?.found ?? '', /999-future/);
  });

  test('a clock that has been set back', async () => {
    const folder = copy('clock');
    const ahead = Date.now() + 40 * 86_400_000;
    change(folder, 'drop trigger usage_no_update', `update usage set started_at = ${ahead}, ended_at = ${ahead}`);
    assert.ok(problemsOf(await doctor(folder)).includes('clock'));
  });

  test('a database with damaged pages', async () => {
    const folder = copy('damaged');
    const file = join(folder, 'data', 'tokenhouse.db');
    const descriptor = openSync(file, 'r+');
    const { size } = statSync(file);
    for (let offset = 4096; offset < size; offset += 4096)
      writeSync(descriptor, Buffer.alloc(2000, 0x5a), 0, 2000, offset);
    closeSync(descriptor);
    assert.deepEqual(problemsOf(await doctor(folder)), ['database']);
  });

  test('a file that is no database', async () => {
    const folder = copy('letter');
    writeFileSync(join(folder, 'data', 'tokenhouse.db'), 'a letter\n'.repeat(1000));
    for (const suffix of ['-wal', '-shm']) rmSync(join(folder, 'data', `tokenhouse.db${suffix}`), { force: true });
    assert.deepEqual(problemsOf(await doctor(folder)), ['database']);
  });

  test('a secret that others can read', async () => {
    const folder = copy('secret');
    chmodSync(join(folder, 'data', 'secret'), 0o644);
    const report = await doctor(folder);
    assert.deepEqual(problemsOf(report), ['secret']);
    assert.match(found(report, 'secret')?.repair ?? '', /^chmod 600 /);
  });

  test('a process that owns the database without answering', async () => {
    const folder = copy('owned');
    const holder = new DatabaseSync(join(folder, 'data', 'tokenhouse.db.lock'));
    holder.exec('begin exclusive');
    try {
      const report = await doctor(folder);
      assert.equal(found(report, 'owner')?.state, 'warning');
    } finally {
      holder.close();
    }
  });

  test('everything that is wrong with the configuration, and goes on with what needs none', async () => {
    const folder = new CommandFolder('servr: {}\nmodles: []\n');
    const report = await doctor(folder.path);
    assert.deepEqual(problemsOf(report), ['configuration', 'configuration']);
    assert.equal(found(report, 'configuration')?.found, 'tokenhouse.yaml:1:1');
    assert.ok(found(report, 'node'));
    folder.dispose();
  });

  test('a variable that nothing reads', async () => {
    const report = await doctor(copy('variable'), { TOKENHOUSE_MODEL_DRI: 'x' });
    const { found: name, repair } = found(report, 'configuration')!;
    assert.deepEqual([name, repair], ['TOKENHOUSE_MODEL_DRI', 'unset TOKENHOUSE_MODEL_DRI']);
  });

  test('a port that is taken, with a command that avoids it', async () => {
    const holder = createServer();
    await new Promise<void>((resolve) => holder.listen(0, '127.0.0.1', resolve));
    const { port } = holder.address() as AddressInfo;
    const folder = new CommandFolder(
      `server: { inference: { port: ${port} }, account: { port: 0 } }\n${scriptedModel('- say: [ { text: a } ]')}`,
    );
    const report = await doctor(folder.path);
    assert.deepEqual(problemsOf(report), ['port']);
    assert.match(found(report, 'port')?.repair ?? '', /^tokenhouse serve --port \d+$/);
    folder.dispose();
    await new Promise<void>((resolve) => holder.close(() => resolve()));
  });

  test('model files: with other bytes, missing, and right', async () => {
    const folder = new CommandFolder(
      `server: { inference: { port: 0 }, account: { port: 0 } }
models:
${['wrong: [ "file:./model.gguf" ]', 'missing: [ "hf:a/b/c.gguf@main" ]']
  .map((entry) => entry.split(': '))
  .map(
    ([id, sources]) => `  - id: ${id}
    context_length: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ { engine: llama, sources: ${sources}, sha256: ${'ab'.repeat(32)} } ]
`,
  )
  .join('')}`,
      { TOKENHOUSE_MODEL_DIR: './models' },
    );
    folder.write('model.gguf', 'other bytes');
    const report = await doctor(folder.path, { TOKENHOUSE_MODEL_DIR: './models' });
    const models = report.checks.filter(({ check }) => check === 'model');
    assert.deepEqual(
      models.map(({ state, repair }) => [state, repair]),
      [
        ['problem', 'tokenhouse models pull wrong'],
        ['warning', 'tokenhouse models pull missing'],
      ],
    );
    assert.match(models[0]?.why ?? '', /is another file: its sha256 is/);
    assert.equal(found(report, 'engine')?.state, 'ok', found(report, 'engine')?.why);
    folder.dispose();
  });

  test('GPUs: layers without a build, and a build of another release', async () => {
    const build = join('models', '.engine', '3.0.0', 'vulkan');
    const folder = new CommandFolder(
      `server: { inference: { port: 0 }, account: { port: 0 } }
models:
  - id: large
    context_length: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ { engine: llama, sources: [ "file:./model.gguf" ], sha256: ${'ab'.repeat(32)}, gpu: 20 } ]
`,
      { TOKENHOUSE_MODEL_DIR: './models' },
    );
    const variables = { TOKENHOUSE_MODEL_DIR: './models' };
    const without = found(await doctor(folder.path, variables), 'gpu');
    // A Mac has Metal.
    if (process.platform !== 'darwin') {
      assert.equal(without?.state, 'warning');
      assert.match(without.found, /no build of llama\.cpp for a GPU is installed/);
      assert.equal(without.why, 'large asks for 20 layers on a GPU, and is computed by the processor');
      assert.equal(without.repair, 'tokenhouse engine install vulkan (or cuda)');
    }
    mkdirSync(join(folder.path, build, 'bins'), { recursive: true });
    folder.write(join(build, 'build.json'), JSON.stringify({ binaries: 'bins', furtherBinaries: null, bytes: 7 }));
    folder.write(join(build, 'bins', 'llama-addon.node'), '');
    const outdated = found(await doctor(folder.path, variables), 'gpu');
    assert.equal(outdated?.state, 'warning');
    assert.equal(outdated.found, 'Vulkan · a build of another version (3.0.0), which is not used');
    assert.equal(outdated.repair, 'tokenhouse engine install vulkan');
    folder.dispose();
  });

  test('a model file that the running service has: the service is asked, whatever is on the disk now', async () => {
    const running = new TestService({ config: '' });
    const file = join(running.folder, 'tiny.gguf');
    writeTinyGguf(file);
    const sha256 = sha256Of(file);
    running.configure({
      config: `models:
  - id: tiny
    context_length: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ { engine: llama, sources: [ "file:./tiny.gguf" ], sha256: ${sha256} } ]`,
    });
    try {
      await running.start();
      const there = found(await doctor(running.folder), 'model');
      assert.equal(there?.state, 'ok');
      assert.match(there.found, /tiny\.gguf · 4\d\d\.\d kB, in use by the running service$/);
      rmSync(file);
      const gone = found(await doctor(running.folder), 'model');
      assert.equal(gone?.state, 'warning');
      assert.match(gone.found, /in use by the running service, and gone from its folder$/);
      assert.equal(gone.repair, 'tokenhouse models pull tiny');
    } finally {
      await running.dispose();
    }
  });

  test('a running service whose server is gone: the repair asks that server, and pulls no model', async () => {
    const gone = createServer();
    await new Promise<void>((resolve) => gone.listen(0, '127.0.0.1', resolve));
    const url = `http://127.0.0.1:${(gone.address() as AddressInfo).port}/v1`;
    await new Promise<void>((resolve) => gone.close(() => resolve()));
    const running = new InnerService({
      config: `models:
  - id: far
    context_length: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [{ engine: openai, name: there, flavor: vllm, url: "${url}" }]
`,
    });
    await running.start();
    try {
      const ofService = async () => found(await doctor(running.folder), 'service');
      await until(async () => (await ofService())?.state === 'problem', 30_000);
      assert.equal((await ofService())?.repair, `curl -i ${url}/models`);
    } finally {
      await running.dispose();
    }
  });

  test('servers that do not answer, refuse the key, lack the model, or are of another kind', async () => {
    const upstream = createHttpServer((request, response) => {
      const isList = request.url === '/v1/models';
      const status = request.headers.authorization !== 'Bearer right' ? 401 : isList ? 200 : 404;
      response.writeHead(status).end(JSON.stringify({ data: [{ id: 'theirs', owned_by: 'vllm' }] }));
    });
    await new Promise<void>((resolve) => upstream.listen(0, '127.0.0.1', resolve));
    const { port } = upstream.address() as AddressInfo;
    const url = `http://127.0.0.1:${port}/v1`;
    const gone = createServer();
    await new Promise<void>((resolve) => gone.listen(0, '127.0.0.1', resolve));
    const closed = (gone.address() as AddressInfo).port;
    await new Promise<void>((resolve) => gone.close(() => resolve()));
    const backends: readonly (readonly [string, Finding['state'], RegExp, string | undefined])[] = [
      [`flavor: vllm, url: "http://127.0.0.1:${closed}/v1"`, 'problem', /^Nothing listens at /, 'curl -i '],
      [`flavor: vllm, url: "${url}"`, 'problem', /requires a key \(status 401\)/, 'curl -i '],
      [`flavor: vllm, url: "${url}", api_key: wrong`, 'problem', /does not accept the key/, 'curl -i '],
      [
        `flavor: vllm, url: "${url}", api_key: right`,
        'warning',
        /no model 'ours'. It has: theirs/,
        'tokenhouse config ',
      ],
      [
        `flavor: sglang, url: "${url}", api_key: right, model: theirs`,
        'warning',
        /Set flavor: vllm/,
        'tokenhouse config ',
      ],
      [`flavor: vllm, url: "${url}", api_key: right, model: theirs`, 'ok', /^$/, undefined],
    ];
    const folder = new CommandFolder(
      `server: { inference: { port: 0 }, account: { port: 0 } }
models:
  - id: ours
    context_length: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends:
${backends.map(([fields], index) => `      - { engine: openai, name: b${index}, ${fields} }\n`).join('')}`,
    );
    try {
      const report = await doctor(folder.path);
      const findings = report.checks.filter(({ check }) => check === 'backend');
      assert.equal(findings.length, backends.length);
      for (const [index, [fields, state, why, repair]] of backends.entries()) {
        const finding = findings[index];
        assert.equal(finding?.state, state, fields);
        assert.match(finding.why ?? '', why, fields);
        assert.ok(repair === undefined || finding.repair?.includes(repair), `${fields}: ${finding.repair}`);
        assert.match(finding.found, new RegExp(`^ours · b${index} · http:`));
      }
      assert.ok(!JSON.stringify(findings).includes('wrong'));
    } finally {
      folder.dispose();
      await new Promise<void>((resolve) => upstream.close(() => resolve()));
    }
  });

  test('too few open files', async () => {
    assert.notEqual(process.platform, 'win32', 'this test needs ulimit; run it on Linux or macOS');
    const folder = copy('ulimit');
    mkdirSync(folder, { recursive: true });
    const child = spawn(
      'sh',
      ['-c', 'ulimit -n 600; exec "$@"', 'sh', process.execPath, mainFile, 'doctor', '--json'],
      {
        cwd: folder,
        stdio: ['ignore', 'pipe', 'inherit'],
      },
    );
    let stdout = '';
    child.stdout.on('data', (text: Buffer) => (stdout += text.toString()));
    assert.equal(await new Promise((resolve) => child.on('close', resolve)), 1);
    const { checks } = JSON.parse(stdout) as { checks: readonly Finding[] };
    const finding = checks.find(({ check }) => check === 'open files');
    assert.deepEqual([finding?.state, finding?.found], ['problem', '600']);
  });
});

test('versions, clocks and memory are judged', () => {
  const day = Date.UTC(2026, 10, 21);
  const rows: readonly (readonly [Finding, Finding['state']])[] = [
    [lookAtNode('18.20.0'), 'problem'],
    [lookAtNode('20.18.3'), 'problem'],
    [lookAtNode('20.19.0'), 'warning'],
    [lookAtNode('22.0.0'), 'ok'],
    [lookAtNode('24.1.0'), 'ok'],
    [lookAtClock(0, undefined), 'problem'],
    [lookAtClock(day, undefined), 'ok'],
    [lookAtClock(day, day - 1), 'ok'],
    [lookAtClock(day, day + 30_000), 'ok'],
    [lookAtClock(day, day + 3_600_000), 'problem'],
    [lookAtMemory([1e8], 8e9, 4e9, false), 'ok'],
    [lookAtMemory([7e9], 8e9, 4e9, false), 'problem'],
    [lookAtMemory([7e9], 8e9, 4e9, false, 6e9), 'ok'],
    [lookAtMemory([4e9], 8e9, 4e9, false), 'warning'],
    [lookAtMemory([4e9], 8e9, 1e9, true), 'ok'],
    [lookAtMemory([4e9, 4e9, 4e9], 8e9, 6e9, false), 'ok'],
  ];
  for (const [finding, state] of rows) assert.equal(finding.state, state, JSON.stringify(finding));
  assertComplete(rows.map(([finding]) => finding));
});
