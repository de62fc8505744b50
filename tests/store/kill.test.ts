import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { test } from 'node:test';
import { closeConnection, openConnection } from '../../src/store/sqlite/connection.ts';
import { isOwned } from '../../src/store/sqlite/lock.ts';
import { openSqliteStore } from '../../src/store/sqlite/store.ts';
import { differencesOf, temporaryFolder } from './fixture.ts';
import { built } from '../support/built.ts';

const rounds = 20;
const child = built('tests/store/settle-until-killed.ts');

test(`M1, M8: killed ${rounds} times in mid-work, the ledger has all that it acknowledged, once`, async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  const acknowledged = new Map<string, bigint>();
  const credited = new Set<string>();
  let crashed = 0;
  for (let round = 0; round < rounds; round++) {
    for (const line of (await runUntilKilled(file)).split('\n').slice(0, -1)) {
      const [what, ...rest] = line.split(' ');
      if (what === 'settled') acknowledged.set(rest[0]!, BigInt(rest[1]!));
      else credited.add(rest.join(' '));
    }
    assert.equal(isOwned(file), false, 'the lock ends with the process');
    const open = openIds(file);
    const store = await openSqliteStore({ file, onFatal: assert.ifError });
    await store.close();
    const { costs, endings, keys } = contents(file);
    for (const [id, cost] of acknowledged) assert.equal(costs.get(id), cost, `round ${round}: ${id} was acknowledged`);
    for (const key of credited) assert.ok(keys.has(key), `round ${round}: ${key} was acknowledged`);
    for (const id of open) assert.equal(endings.get(id), 'crashed', `round ${round}: ${id} was running`);
    crashed += open.length;
    assert.equal([...endings.values()].filter((ending) => ending === 'crashed').length, crashed);
    assert.deepEqual(openIds(file), []);
    assert.deepEqual(await differencesOf(file, false), []);
  }
  assert.ok(acknowledged.size > rounds * 50 && crashed > 0, `too little happened: ${acknowledged.size}, ${crashed}`);
  t.diagnostic(
    `${acknowledged.size} acknowledged settlements, ${credited.size} transfers, ${crashed} requests recovered`,
  );
});

/** Lets it settle at least a hundred requests and kills it at a moment of no special kind. */
async function runUntilKilled(file: string): Promise<string> {
  const running = spawn(process.execPath, [child, file], { stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  let errors = '';
  const killAfter = 6000 + Math.random() * 60_000; // bytes
  running.stdout.on('data', (chunk: Buffer) => {
    output += chunk.toString();
    if (output.length > killAfter) running.kill('SIGKILL');
  });
  running.stderr.on('data', (chunk: Buffer) => (errors += chunk.toString()));
  const deadline = setTimeout(() => running.kill('SIGKILL'), 120_000);
  const [, signal] = (await once(running, 'close')) as [number | null, string | null];
  clearTimeout(deadline);
  assert.equal(signal, 'SIGKILL', errors);
  assert.ok(output.length > killAfter, `it settled too little in two minutes: ${errors}`);
  return output;
}

/**
 * With a connection that may write, which reads the log anew: one that may not trusts the shared index of the log, and a
 * process that is killed between its fsync and the index leaves it behind the log.
 */
function openIds(file: string): readonly string[] {
  const connection = openConnection(file);
  const rows = connection.prepare('select hex(request_id) as id from open_request').all() as { id: string }[];
  closeConnection(connection);
  return rows.map((row) => row.id.toLowerCase());
}

function contents(file: string) {
  const connection = openConnection(file);
  const usage = connection.prepare('select lower(hex(request_id)) as id, cost, ending from usage').all() as {
    id: string;
    cost: bigint;
    ending: string;
  }[];
  const transfers = connection.prepare('select idempotency_key as key from transfer').all() as { key: string }[];
  closeConnection(connection);
  return {
    costs: new Map(usage.map((row) => [row.id, row.cost])),
    endings: new Map(usage.map((row) => [row.id, row.ending])),
    keys: new Set(transfers.map((row) => row.key)),
  };
}
