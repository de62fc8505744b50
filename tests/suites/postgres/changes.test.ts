/**
 * Keys, accounts, prices and entitlements that are changed through one replica of three, or beside them, are in force on
 * all; who cannot know lets nobody in; and who is stopped lets its answers end (money, "Revocation", M9; reliability S7).
 */
import assert from 'node:assert/strict';
import { after, before, test, type TestContext } from 'node:test';
import { until, type TestService } from '../../support/service.ts';
import { assertRight } from './fixture.ts';
import { report } from '../../support/workers.ts';
import { ask, asked, serviceOn, stream } from './replica-service.ts';
import { PostgresServer } from './server.ts';
import { Wire } from './wire.ts';

/** Ten times what the service promises. */
const boundMs = 10_000;
const longMs = 60_000;

let server: PostgresServer;
let url = '';
/** The third replica's way to the database: no call gets through it. */
let wire: Wire;
/** Two that hear the database's calls, and one that does not. */
let replicas: readonly [TestService, TestService, TestService];
let accountId = '';

/** What has been opened, in that order. */
const opened: (() => unknown)[] = [];
before(async () => {
  server = await PostgresServer.start();
  opened.push(() => server.dispose());
  url = await server.databaseWithTables();
  wire = await Wire.open(server.port, { isDeaf: true });
  opened.push(() => wire.close());
  const [first, ...others] = [serviceOn(url), serviceOn(url), serviceOn(wire.url(url))] as const;
  for (const service of [first, ...others]) opened.push(() => service.dispose());
  await first.start();
  ({ accountId } = first);
  for (const other of others) Object.assign(other, { key: first.key, accountId });
  replicas = [first, ...others];
  await Promise.all(others.map((other) => other.start()));
});
after(async () => {
  for (const close of opened.toReversed()) await close();
});

async function newKey(
  through: TestService,
  account = accountId,
): Promise<{ readonly id: string; readonly key: string }> {
  const answer = await report(through, { kind: 'create_key', accountId: account, name: 'x', expiresAt: undefined });
  return { id: answer.keyId, key: answer.key };
}

const catalogue = (service: TestService, key: string): Promise<Response> =>
  fetch(`${service.url}/v1/models`, { headers: { authorization: `Bearer ${key}` } });

async function statusOf(service: TestService, key: string): Promise<number> {
  const answer = await catalogue(service, key);
  await answer.arrayBuffer();
  return answer.status;
}

/** How long it takes until the replica answers with this status. */
async function timeUntil(status: number, service: TestService, key: string): Promise<number> {
  const begun = performance.now();
  await until(async () => (await statusOf(service, key)) === status, longMs);
  return performance.now() - begun;
}

const median = (times: readonly number[]): number => times.toSorted((a, b) => a - b)[Math.floor(times.length / 2)]!;

function judge(t: TestContext, what: string, times: readonly number[]): void {
  const largest = Math.max(...times);
  t.diagnostic(`${what}: median ${median(times).toFixed(0)} ms, largest ${largest.toFixed(0)} ms of ${times.length}`);
  assert.ok(largest < boundMs, `${what}: ${largest} ms`);
}

test('M9: a key that is made and revoked through one replica is known and refused on the others, also without calls', async (t) => {
  const trials = Number(process.env['TOKENHOUSE_TRIALS'] ?? 20);
  const callsLost = wire.callsLost;
  const names = ['with calls', 'without calls'];
  const made: number[][] = [[], []];
  const revoked: number[][] = [[], []];
  for (let trial = 0; trial < trials; trial++) {
    const { id, key } = await newKey(replicas[0]);
    assert.notEqual(await statusOf(replicas[0], key), 401, 'in force where it was made');
    const others = [replicas[1], replicas[2]];
    const known = await Promise.all(others.map((other) => timeUntil(200, other, key)));
    await report(replicas[0], { kind: 'revoke_key', keyId: id });
    assert.notEqual(await statusOf(replicas[0], key), 200);
    const refused = await Promise.all(others.map((other) => timeUntil(401, other, key)));
    for (const index of [0, 1]) {
      made[index]!.push(known[index]!);
      revoked[index]!.push(refused[index]!);
    }
  }
  for (const index of [0, 1]) {
    judge(t, `made, ${names[index]}`, made[index]!);
    judge(t, `revoked, ${names[index]}`, revoked[index]!);
  }
  assert.ok(wire.callsLost > callsLost, 'calls were lost');
});

/** An answer that streams on this replica; resolves when it has begun. */
async function streaming(
  service: TestService,
  key: string,
  content: string,
): Promise<{ readonly text: Promise<string> }> {
  const answer = await asked(service, stream(content), { key });
  assert.equal(answer.status, 200);
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  const first = await reader.read();
  const rest = async (): Promise<string> => {
    let text = first.value ?? '';
    for (let next = await reader.read(); !next.done; next = await reader.read()) text += next.value;
    return text;
  };
  return { text: rest() };
}

test('streams of a revoked key and of a suspended account are cut on every replica, with the error of the key', async () => {
  const made = await report(replicas[0], { kind: 'create_account', name: 'another' });
  const another = made.accountId;
  await report(replicas[0], {
    kind: 'move_credit',
    movement: 'grant',
    accountId: another,
    microcents: '100000000',
    reference: undefined,
    idempotencyKey: 'first',
  });
  const [one, two] = [await newKey(replicas[0], another), await newKey(replicas[0], another)];
  for (const replica of replicas) for (const { key } of [one, two]) await timeUntil(200, replica, key);
  const ofOne = await Promise.all(replicas.map((replica) => streaming(replica, one.key, 'endless')));
  const ofTwo = await Promise.all(replicas.map((replica) => streaming(replica, two.key, 'endless')));
  const refused = /"code":"invalid_api_key".*\n\ndata: \[DONE\]\n\n$/s;
  await report(replicas[1], { kind: 'revoke_key', keyId: one.id });
  for (const { text } of ofOne) assert.match(await text, refused);
  for (const replica of replicas) await timeUntil(200, replica, two.key); // the other key goes on
  await report(replicas[2], { kind: 'suspend_account', accountId: another });
  for (const { text } of ofTwo) assert.match(await text, refused);
  for (const replica of replicas) await timeUntil(401, replica, two.key);
  const rows = await server.sql(url, `select ending, cost > 0 as paid from usage where account_id = '${another}'`);
  assert.deepEqual(
    rows,
    Array.from({ length: 6 }, () => ({ ending: 'revoked', paid: true })),
  );
  await report(replicas[0], { kind: 'revive_account', accountId: another });
  for (const replica of replicas) await timeUntil(200, replica, two.key);
});

test('both secrets of a rotated key are known on every replica, also without calls, and end there at the same time', async (t) => {
  const { id, key } = await newKey(replicas[0]);
  const rotate = async (through: TestService, overlapMs: number): Promise<string> => {
    const answer = await report(through, { kind: 'rotate_key', keyId: id, overlapMs });
    assert.ok(answer.keyId === id);
    return answer.key;
  };
  for (const replica of replicas) await timeUntil(200, replica, key);
  const second = await rotate(replicas[0], 3_600_000);
  const known = await Promise.all(replicas.map((replica) => timeUntil(200, replica, second)));
  judge(t, 'rotated', known);
  for (const replica of replicas) assert.equal(await statusOf(replica, key), 200, 'the earlier secret works on');
  const third = await rotate(replicas[1], 3_600_000);
  const ended = await Promise.all(replicas.map((replica) => timeUntil(401, replica, key)));
  judge(t, 'ended by the next rotation', ended);
  for (const replica of replicas) await timeUntil(200, replica, third);
  for (const replica of replicas) assert.equal(await statusOf(replica, second), 200);
  const fourth = await rotate(replicas[2], 1_000);
  const over = await Promise.all(replicas.map((replica) => timeUntil(401, replica, third)));
  judge(t, 'ended by the clock of the database', over);
  for (const replica of replicas) assert.equal(await statusOf(replica, fourth), 200);
  await report(replicas[0], { kind: 'revoke_key', keyId: id });
  for (const replica of replicas) await timeUntil(401, replica, fourth);
});

test('a paused key is refused and cut on every replica, and goes on when it is resumed', async () => {
  const { id, key } = await newKey(replicas[0]);
  for (const replica of replicas) await timeUntil(200, replica, key);
  const streams = await Promise.all(replicas.map((replica) => streaming(replica, key, 'endless')));
  await report(replicas[1], { kind: 'edit_key', keyId: id, disabled: true });
  for (const { text } of streams) assert.match(await text, /"code":"invalid_api_key".*\n\ndata: \[DONE\]\n\n$/s);
  for (const replica of replicas) await timeUntil(401, replica, key);
  await report(replicas[2], { kind: 'edit_key', keyId: id, disabled: false });
  for (const replica of replicas) await timeUntil(200, replica, key);
});

interface Card {
  readonly service: { readonly pricing: { readonly input_cents_per_million: number } };
}

test('prices and entitlements reach every replica, and are charged', async () => {
  const { id: keyId, key } = await newKey(replicas[0]);
  for (const replica of replicas) await timeUntil(200, replica, key);
  const cards = async (service: TestService): Promise<readonly Card[]> => {
    let found: readonly Card[] | undefined;
    await until(async () => {
      ({ data: found } = (await (await catalogue(service, key)).json()) as { readonly data?: readonly Card[] });
      return found !== undefined;
    }, longMs);
    return found!;
  };
  const inputPrice = ([card]: readonly Card[]) => card?.service.pricing.input_cents_per_million;
  const listed = inputPrice(await cards(replicas[0]));
  assert.ok(listed !== undefined && listed !== 7);
  const everywhere = async (holds: (cards: readonly Card[]) => boolean): Promise<void> => {
    for (const replica of replicas) await until(async () => holds(await cards(replica)), longMs);
  };
  await report(replicas[2], {
    kind: 'set_price',
    accountId,
    model: 'demo',
    input: '7000000',
    output: '7000000',
    cacheRead: undefined,
    validFrom: undefined,
    validTo: undefined,
  });
  await everywhere((of) => inputPrice(of) === 7);
  for (const replica of replicas) assert.equal((await asked(replica, ask, { key })).status, 200);
  const charged = await server.sql(
    url,
    `select distinct input_price::text as price from usage where key_id = '${keyId}'`,
  );
  assert.deepEqual(charged, [{ price: '7000000' }]);
  await report(replicas[1], { kind: 'remove_price', accountId, model: 'demo' });
  await everywhere((of) => inputPrice(of) === listed);

  await report(replicas[1], { kind: 'allow_key', keyId, models: ['nothing'] });
  await everywhere(({ length }) => length === 0);
  for (const replica of replicas) assert.equal((await asked(replica, ask, { key })).status, 403);
  await report(replicas[0], { kind: 'allow_key', keyId, models: undefined });
  await everywhere(({ length }) => length === 1);
  await report(replicas[0], { kind: 'allow_account', accountId, models: ['nothing'] });
  await everywhere(({ length }) => length === 0);
  await report(replicas[2], { kind: 'allow_account', accountId, models: undefined });
  await everywhere(({ length }) => length === 1);
});

test('limits of accounts and keys reach every replica', async () => {
  const { id: keyId, key } = await newKey(replicas[0]);
  for (const replica of replicas) await timeUntil(200, replica, key);
  const capOf = async (service: TestService): Promise<string | null> => {
    const answer = await asked(service, ask, { key });
    await answer.arrayBuffer();
    return answer.headers.get('ratelimit-limit');
  };
  const everywhere = async (cap: string | null): Promise<void> => {
    for (const replica of replicas) await until(async () => (await capOf(replica)) === cap, longMs);
  };
  await everywhere(null);
  await report(replicas[2], { kind: 'limit_account', accountId, limits: { concurrencyMax: 7 } });
  await everywhere('7');
  await report(replicas[1], { kind: 'limit_account', accountId, limits: { concurrencyMax: null } });
  await everywhere(null);
  await report(replicas[0], { kind: 'limit_key', keyId, limits: { concurrencyMax: 5 } });
  await everywhere('5');

  for (let round = 1; round <= 10; round++) {
    // Two who change different limits at once both do, whichever operation they use.
    await Promise.all([
      report(replicas[0], { kind: 'limit_key', keyId, limits: { concurrencyMax: round } }),
      report(replicas[1], { kind: 'edit_key', keyId, limits: { requestsPerMinute: 100 + round } }),
    ]);
    const { limits } = (await report(replicas[2], { kind: 'limit_key', keyId, limits: {} })) as { limits: unknown };
    assert.deepEqual(limits, { concurrencyMax: round, requestsPerMinute: 100 + round });
  }
});

test('zero data retention of an account reaches every replica, and two who set different limits at once both do', async () => {
  const { key } = await newKey(replicas[0]);
  for (const replica of replicas) await timeUntil(200, replica, key);
  const everywhere = async (status: number, cap: string | null): Promise<void> => {
    for (const replica of replicas)
      await until(async () => {
        const answer = await asked(replica, ask, { key });
        await answer.arrayBuffer();
        return answer.status === status && (status !== 200 || answer.headers.get('ratelimit-limit') === cap);
      }, longMs);
  };
  for (let round = 1; round <= 5; round++) {
    await Promise.all([
      report(replicas[0], { kind: 'zdr_account', accountId, required: true }),
      report(replicas[1], { kind: 'limit_account', accountId, limits: { concurrencyMax: round } }),
    ]);
    // No backend of the model is one that retains nothing.
    await everywhere(400, null);
    await report(replicas[2], { kind: 'zdr_account', accountId, required: false });
    await everywhere(200, String(round));
  }
  await report(replicas[1], { kind: 'limit_account', accountId, limits: { concurrencyMax: null } });
  await everywhere(200, null);
});

test('budgets of keys and accounts reach every replica, and what was leased of one goes back when it is lowered', async () => {
  const { id: keyId, key } = await newKey(replicas[0]);
  for (const replica of replicas) await timeUntil(200, replica, key);
  const statusFrom = async (service: TestService): Promise<number> => {
    const answer = await asked(service, ask, { key });
    await answer.arrayBuffer();
    return answer.status;
  };
  const everywhere = async (status: number): Promise<void> => {
    for (const replica of replicas) await until(async () => (await statusFrom(replica)) === status, longMs);
  };
  const set = (through: TestService, microcents: string | undefined): Promise<unknown> => {
    const budget = microcents === undefined ? undefined : ({ microcents, per: 'month' } as const);
    return report(through, { kind: 'budget_key', keyId, budget });
  };
  await set(replicas[0], '100000000');
  await everywhere(200);
  await until(async () => (await server.sql(url, 'select 1 from budget_lease where remaining > 0')).length > 0, longMs);
  await set(replicas[1], '1');
  await everywhere(402);
  // Nothing of the first budget is left to be spent on any of them.
  await until(
    async () => (await server.sql(url, 'select 1 from budget_lease where remaining > 0')).length === 0,
    longMs,
  );
  for (const replica of replicas) assert.equal(await statusFrom(replica), 402);
  await set(replicas[2], undefined);
  await everywhere(200);
  await report(replicas[2], { kind: 'budget_account', accountId, budget: { microcents: '0', per: 'day' } });
  await everywhere(402);
  await report(replicas[0], { kind: 'budget_account', accountId });
  await everywhere(200);
  await assertRight(url);
});

test('a command that has no replica beside it changes the same for all of them', async (t) => {
  const beside = serviceOn(url);
  t.after(() => beside.dispose());
  const said = async (...words: string[]): Promise<string> => {
    const { code, stdout, stderr } = await beside.command(...words);
    assert.equal(code, 0, stdout + stderr);
    return stdout;
  };
  const { id, key } = JSON.parse(await said('keys', 'create', '--account', accountId, '--json')) as {
    readonly id: string;
    readonly key: string;
  };
  for (const replica of replicas) await timeUntil(200, replica, key);
  await said('keys', 'revoke', id);
  for (const replica of replicas) await timeUntil(401, replica, key);
});

test('D2: a replica whose database is slow answers or refuses in words, charges what it serves, and hears of changes', async (t) => {
  const [one, , slow] = replicas;
  const { id, key } = await newKey(one);
  await timeUntil(200, slow, key);
  wire.delayMs = 500;
  const statuses: number[] = [];
  try {
    for (let count = 0; count < 5; count++) {
      const answer = await slow.chat(ask, { key });
      await answer.arrayBuffer();
      statuses.push(answer.status);
    }
    await until(async () => (await slow.chat(ask, { key })).status === 200, longMs);
    statuses.push(200);
    await report(one, { kind: 'revoke_key', keyId: id });
    judge(t, 'revoked, 500 ms away', [await timeUntil(401, slow, key)]);
  } finally {
    wire.delayMs = 0;
  }
  t.diagnostic(statuses.join(' '));
  for (const status of statuses) assert.ok(status === 200 || status === 500, String(status));
  // A charge that became durable after its client had been told otherwise is paid back.
  const served = statuses.filter((status) => status === 200).length;
  await until(async () => {
    const [row] = await server.sql(
      url,
      `select (select count(*) from usage where key_id = '${id}' and cost > 0)::int
         - (select count(*) from transfer where kind = 'refund')::int as count`,
    );
    return row?.['count'] === served;
  }, longMs);
});

test('D3: a replica that is cut off from the database lets nobody in, and finds what it has missed', async () => {
  const [one, , cutOff] = replicas;
  const kept = await newKey(one);
  const revoked = await newKey(one);
  for (const { key } of [kept, revoked]) await timeUntil(200, cutOff, key);
  wire.cut();
  await until(async () => (await statusOf(cutOff, kept.key)) === 500, longMs);
  await report(one, { kind: 'revoke_key', keyId: revoked.id });
  const refused = await cutOff.chat(ask, { key: revoked.key });
  assert.equal(refused.status, 500);
  assert.equal(refused.headers.get('retry-after'), '1');
  assert.equal(((await refused.json()) as { error: { code: string } }).error.code, 'internal_error');
  for (const url of [cutOff.url, cutOff.accountUrl]) assert.equal((await fetch(`${url}/readyz`)).status, 503);
  assert.equal((await fetch(`${cutOff.url}/healthz`)).status, 200);
  assert.equal((await fetch(`${cutOff.url}/v1/models`)).status, 200, 'list prices need no key');
  wire.mend();
  const seen = new Set<number>();
  await until(async () => {
    const status = await statusOf(cutOff, revoked.key);
    seen.add(status);
    return status === 401;
  }, longMs);
  assert.ok(!seen.has(200), 'it is let in never again');
  await timeUntil(200, cutOff, kept.key);
  await until(async () => (await cutOff.chat(ask)).status === 200, longMs);
  await until(async () => (await fetch(`${cutOff.url}/readyz`)).status === 200, longMs);
});

test('D3: a database that is killed closes all replicas, and opens them when it is back', async () => {
  const [{ key }] = replicas;
  await server.kill();
  for (const replica of replicas) {
    await until(async () => (await statusOf(replica, key)) === 500, longMs);
    assert.equal((await replica.chat(ask)).status, 500);
  }
  await server.resume();
  for (const replica of replicas) await until(async () => (await replica.chat(ask)).status === 200, longMs);
  const fresh = await newKey(replicas[1]);
  for (const replica of replicas) await timeUntil(200, replica, fresh.key);
});

test('S7: a replica that is stopped lets its answers end, returns what it had leased, and the others go on', async () => {
  const [one, stopped, three] = replicas;
  const leaving = await Promise.all(Array.from({ length: 4 }, () => streaming(stopped, stopped.key, 'paced')));
  const staying = await Promise.all([one, three].map((replica) => streaming(replica, replica.key, 'paced')));
  const [before] = await server.sql(url, 'select count(*)::int as count from replica');
  assert.deepEqual(before, { count: 3 });
  const ended = stopped.stop('SIGTERM');
  await until(async () => {
    const status = await fetch(`${stopped.url}/readyz`).then(
      ({ status }) => status,
      () => 'refused',
    );
    return status === 503 || status === 'refused';
  }, longMs);
  for (const { text } of [...leaving, ...staying]) {
    const events = await text;
    assert.match(events, /"finish_reason":"stop"/);
    assert.match(events, /data: \[DONE\]\n\n$/);
    assert.doesNotMatch(events, /"error"/);
  }
  assert.equal(await ended, 0);
  assert.deepEqual(await server.sql(url, 'select count(*)::int as count from replica'), [{ count: 2 }]);
  const stranded = `select 1 from credit_lease where replica_id not in (select id from replica)`;
  assert.deepEqual(await server.sql(url, stranded), []);
  assert.equal((await asked(one)).status, 200);
  assert.equal(await one.stop(), 0);
  assert.equal(await three.stop(), 0);
  assert.deepEqual(await server.sql(url, 'select 1 from credit_lease union all select 1 from open_request'), []);
  const unended = await server.sql(url, `select 1 from usage where ending in ('drained', 'crashed')`);
  assert.deepEqual(unended, []);
  await assertRight(url, false);
});
