import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { pathToFileURL } from 'node:url';
import { DatabaseSync } from '@photostructure/sqlite';
import { openSqliteStore } from '../../src/store/sqlite/store.ts';
import { StoreError } from '../../src/store/store-error.ts';
import { canCause } from '../support/machine.ts';
import {
  balanceOf,
  customer,
  differencesOf,
  grant,
  MemoryBalances,
  openRequest,
  openStore,
  temporaryFolder,
  usage,
} from './fixture.ts';
import { built } from '../support/built.ts';

const refused = (code: StoreError['code']) => (error: unknown) => error instanceof StoreError && error.code === code;

test('D1: while another program locks the file, settlements fail as busy and write nothing; afterwards they work', async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  const free = new MemoryBalances();
  const store = await openStore(t, file, { free });
  await customer(store, 'acct_a', 100n);
  free.credit('acct_a', await store.ledger.leases.lease('acct_a', 1n));
  assert.equal(free.freeMicrocents('acct_a'), 100n);
  const other = new DatabaseSync(file);
  t.after(() => other.close());
  other.exec('begin immediate');
  const row = usage('acct_a', 10n);
  store.ledger.open(openRequest('acct_a', 10n));
  const started = performance.now();
  const outcomes = await Promise.allSettled([
    store.ledger.settle(row),
    store.ledger.settle(usage('acct_a', 1n)),
    store.ledger.transfer(grant('acct_a', 5n)),
    store.ledger.leases.lease('acct_a', 200n),
    store.ledger.transfer({ ...grant('acct_a', 4n), debitAccount: 'acct_a', creditAccount: 'house_promo' }),
  ]);
  assert.ok(performance.now() - started < 10_000);
  for (const outcome of outcomes) assert.ok(outcome.status === 'rejected' && refused('busy')(outcome.reason));
  assert.equal(free.freeMicrocents('acct_a'), 100n, 'what was to be returned came back, and no credit was added');
  other.exec('rollback');
  assert.equal(await store.ledger.settle(row), 'billed');
  assert.equal(await balanceOf(store, 'acct_a'), 90n);
  assert.deepEqual(await differencesOf(file), []);
  // The open request was kept, and rode with the settlement.
  assert.deepEqual(
    (await differencesOf(file, false)).map((one) => one.found),
    ['open'],
  );
});

test('a ledger that cannot write any more is fatal: everybody who waits hears it, once the owner', async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  const fatal: Error[] = [];
  const store = await openSqliteStore({ file, onFatal: (error) => fatal.push(error) });
  t.after(() => store.close());
  await customer(store, 'acct_a', 100n);
  const vandal = new DatabaseSync(file);
  vandal.exec('drop table usage');
  vandal.close();
  const outcomes = await Promise.allSettled([
    store.ledger.settle(usage('acct_a', 1n)),
    store.ledger.settle(usage('acct_a', 2n)),
    store.ledger.transfer(grant('acct_a', 5n)),
  ]);
  for (const outcome of outcomes) assert.ok(outcome.status === 'rejected' && refused('failed')(outcome.reason));
  assert.equal(fatal.length, 1);
  assert.match(fatal[0]!.message, /no such table/);
  await assert.rejects(store.ledger.settle(usage('acct_a', 1n)), refused('failed'));
  assert.equal(store.ledger.backlog, 0);
});

test('S3: a full disk refuses new money and loses none; with room again, it goes on', async (t) => {
  if (!canCause(t, 'mount')) return;
  const report = await runChild('unshare', [
    '-rm',
    'sh',
    '-c',
    'mount -t tmpfs -o size=8m tmpfs /mnt && exec "$0" "$1" /mnt/x.db',
    process.execPath,
    script(
      t,
      `${preamble}
    import { writeFileSync, rmSync } from 'node:fs';
    const settled = [];
    let full = 0;
    const settle = async () => {
      const row = fixture.usage('acct_a', 1n);
      try {
        await store.ledger.settle(row);
        settled.push(row.requestId);
      } catch (error) {
        if (error.code !== 'full') throw error;
        full += 1;
      }
    };
    writeFileSync('/mnt/ballast', Buffer.alloc(5_500_000));
    while (full < 20) await Promise.all(Array.from({ length: 20 }, settle));
    rmSync('/mnt/ballast');
    const before = settled.length;
    for (let i = 0; i < 50; i++) await settle();
    await store.close();
    const again = await openSqliteStore({ file, onFatal: die });
    let missing = 0;
    for (const id of settled) if (await again.ledger.readBack(id) === undefined) missing += 1;
    await again.close();
    console.log(JSON.stringify({ before, after: settled.length - before, missing, differences: (await fixture.differencesOf(file, false)).length }));`,
    ),
  ]);
  const { before, after, missing, differences } = JSON.parse(report.output) as Record<string, number>;
  assert.ok(before! > 0);
  assert.deepEqual({ after, missing, differences }, { after: 50, missing: 0, differences: 0 });
});

test('S12: when the disk fails to sync, nothing more is acknowledged and the process ends', async (t) => {
  if (!canCause(t, 'strace')) return;
  const file = join(temporaryFolder(t), 'x.db');
  const report = await runChild('strace', [
    '-f',
    '-qq',
    '-o',
    '/dev/null',
    '-e',
    'trace=fsync,fdatasync',
    '-e',
    'inject=fsync,fdatasync:error=EIO:when=60+',
    process.execPath,
    script(
      t,
      `${preamble}
    const { writeSync } = await import('node:fs');
    for (;;) {
      const row = fixture.usage('acct_a', 1n);
      await store.ledger.settle(row).catch(() => new Promise(() => {}));
      writeSync(1, Buffer.from(row.requestId).toString('hex') + '\\n');
    }`,
    ),
    file,
  ]);
  assert.equal(report.code, 70, report.errors);
  assert.match(report.errors, /disk I\/O error/);
  const settled = report.output.split('\n').slice(0, -1);
  assert.ok(settled.length > 5 && settled.length < 60, `${settled.length} settled`);
  const store = await openStore(t, file);
  for (const hex of settled) assert.ok(await store.ledger.readBack(Uint8Array.from(Buffer.from(hex, 'hex'))));
  await store.close();
  assert.deepEqual(await differencesOf(file, false), []);
});

const url = (file: string) => JSON.stringify(pathToFileURL(file).href);
const preamble = `
  const { openSqliteStore } = await import(${url(built('src/store/sqlite/store.ts'))});
  const fixture = await import(${url(built('tests/store/fixture.ts'))});
  const file = process.argv[2];
  const die = (error) => { console.error(error.message); process.exit(70); };
  const store = await openSqliteStore({ file, onFatal: die });
  await fixture.customer(store, 'acct_a', 1000000n);
`;

function script(t: TestContext, text: string): string {
  const file = join(temporaryFolder(t), 'script.mjs');
  writeFileSync(file, text);
  return file;
}

async function runChild(
  command: string,
  parameters: readonly string[],
): Promise<{ code: number | null; output: string; errors: string }> {
  const child = spawn(command, parameters, { stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  let errors = '';
  child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (errors += chunk.toString()));
  const deadline = setTimeout(() => child.kill('SIGKILL'), 30_000);
  const [code] = (await once(child, 'close')) as [number | null];
  clearTimeout(deadline);
  if (code !== 0 && code !== 70) assert.fail(`${command} ended with ${code}: ${errors}`);
  return { code, output, errors };
}
