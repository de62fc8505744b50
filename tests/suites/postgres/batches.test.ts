/** Batches of three replicas, of which any may be killed: each line is answered once and charged once, whoever ran it. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { BatchClient, chatLine, isOver } from '../../support/batch-client.ts';
import { assertEachLineOnce } from '../../support/batch-money.ts';
import { built } from '../../support/built.ts';
import { slowness } from '../../support/busy.ts';
import { until, type TestService } from '../../support/service.ts';
import { customer, openReplica } from './fixture.ts';
import { replicasOf, serviceOn } from './replica-service.ts';
import { PostgresServer } from './server.ts';
import { Wire } from './wire.ts';

const lineCount = 600;
/** Two of three charges take longer than requests wait for them: a kill meets some that are not decided. */
const entry = built('tests/support/slow-settlements-entry.ts');

let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start();
});
after(() => server.dispose());

test('without credit one line of a batch says so, whichever of three replicas runs it; the others run with the next credit', async (t) => {
  const { replicas, ledger } = await replicasOf(t, server, { firstCreditCents: '0.002' });
  const [one, two] = replicas;
  const client = new BatchClient(two);
  const lines = Array.from({ length: 30 }, (_, index) => chatLine(`line-${index}`, 'x', { max_tokens: 10 }));
  const { id } = await client.of(lines);
  const short = await client.when(id, ({ request_counts: counts }) => counts.failed > 0);
  assert.ok(short.request_counts.completed < 29, JSON.stringify(short));
  // Every replica tries once more, and no second line ends.
  await new Promise((resolve) => setTimeout(resolve, 8_000));
  assert.equal((await client.get(id)).request_counts.failed, 1);
  const { code, stderr } = await one.command('credits', 'grant', '--cents', '100', '--account', one.accountId);
  assert.equal(code, 0, stderr);
  const batch = await client.when(id, isOver, 120_000);
  assert.deepEqual([batch.status, batch.request_counts], ['completed', { total: 30, completed: 29, failed: 1 }]);
  assert.equal((await ledger.everyRow()).filter(({ costMicrocents }) => costMicrocents > 0n).length, 29);
  await one.verify();
});

test(`a batch of ${lineCount} lines, run by three replicas of which two are killed`, async (t) => {
  const { replicas, ledger } = await replicasOf(t, server, { entry });
  const [one, two, three] = replicas;
  const client = new BatchClient(three);
  const credit = await ledger.balance();
  const customIds = Array.from({ length: lineCount }, (_, index) => `line-${index}`);
  const { id } = await new BatchClient(one).of(
    customIds.map((customId, index) => chatLine(customId, index % 3 === 0 ? 'short' : `question of ${customId}`)),
  );
  await client.when(id, ({ request_counts: counts }) => counts.completed > 50, 120_000);
  await one.stop('SIGKILL');
  await client.when(id, ({ request_counts: counts }) => counts.completed > 300, 120_000);
  await two.stop('SIGKILL');
  await one.start();
  const batch = await client.when(id, isOver, 240_000);
  await assertEachLineOnce(batch, customIds, { client, ledger, credit });
  await one.verify();
});

test('a claim that is carried out without an answer leaves no line behind', async (t) => {
  const wire = await Wire.open(server.port);
  t.after(() => wire.close());
  const service = serviceOn(wire.url(await server.databaseWithTables()));
  t.after(() => service.dispose());
  await service.start();
  const client = new BatchClient(service);
  wire.loseAnswerTo = 'free_line';
  const { id } = await client.of(['a', 'b', 'c'].map((customId) => chatLine(customId, 'x')));
  const batch = await client.when(id, isOver, 60_000);
  assert.deepEqual(
    [wire.lost, batch.status, batch.request_counts],
    [1, 'completed', { total: 3, completed: 3, failed: 0 }],
  );
  await service.verify();
});

/** What the planner may choose on another day, with other statistics. */
const plans = [
  [],
  ['enable_hashjoin', 'enable_mergejoin', 'enable_material', 'enable_hashagg'],
  ['enable_indexscan', 'enable_indexonlyscan', 'enable_bitmapscan', 'enable_hashjoin', 'enable_mergejoin'],
  ['enable_nestloop', 'enable_hashjoin'],
];
for (const off of plans)
  test(`a claim takes as many lines as it may, each line once, at two replicas at once: ${off.join(', ') || 'the usual plan'}`, async (t) => {
    const url = await server.databaseWithTables();
    for (const setting of off)
      await server.sql('postgres', `alter database ${new URL(url).pathname.slice(1)} set ${setting} = off`);
    const replicas = [await openReplica(t, url), await openReplica(t, url)];
    const { repositories } = replicas[0]!.store;
    await customer(replicas[0]!.store, 'acct_a', 0n);
    const at = Date.now();
    const [id, inputFileId] = ['b'.repeat(32), 'f'.repeat(32)];
    const file = { id: inputFileId, accountId: 'acct_a', bytes: 1, createdAt: at, expiresAt: null };
    await repositories.beginFile({ ...file, bytesMax: 1, at, bounds: { filesMax: 9, bytesMax: 9 } });
    await repositories.finishFile({ ...file, name: 'a.jsonl', mediaType: 'text/plain', purpose: 'batch' });
    const batch = {
      id,
      accountId: 'acct_a',
      keyId: 'key_a',
      wire: 'openai',
      endpoint: '/v1/chat/completions',
    } as const;
    const window = {
      createdAt: at,
      expiresAt: at + 86_400_000,
      requests: 0,
      outputExpiresAfterMs: null,
      metadata: null,
    };
    await repositories.createBatch({ batch: { ...batch, ...window, inputFileId }, openMax: 1 });
    const owner = replicas[0]!.store.ledger.replicaId;
    assert.ok(await repositories.ownBatch({ id, status: 'validating', owner }));
    const lines = Array.from({ length: 2_000 }, (_, line) => ({
      ...{ line: line + 1, customId: `line-${line}`, modelId: 'demo', offsetBytes: line, bytes: 1, result: null },
    }));
    await repositories.addBatchLines({ id, owner, lines });
    await repositories.endValidation({ id, owner, at, outcome: { models: ['demo'] } });
    const taken: number[] = [];
    for (let limit = 1; taken.length < lines.length; limit = (limit % 16) + 1) {
      const claims = await Promise.all(
        replicas.map(({ store }) =>
          store.repositories.claimBatchLines({ id, modelId: 'demo', owner: store.ledger.replicaId, now: at, limit }),
        ),
      );
      for (const claimed of claims) {
        assert.ok(claimed.length <= limit, `${claimed.length} of at most ${limit}`);
        taken.push(...claimed.map(({ line }) => line));
      }
    }
    assert.deepEqual(
      taken.toSorted((a, b) => a - b),
      lines.map(({ line }) => line),
    );
  });

/** How a batch ends whose lines run at three replicas, and what those lines are that take longer. */
const ends = [
  { ends: 'cancelled', longer: 'endless', isKilled: false },
  { ends: 'cancelled', longer: 'endless', isKilled: true },
  // Lines that have begun end, and those of a dead replica do not.
  { ends: 'expired', longer: 'slow', isKilled: true },
] as const;
for (const { ends: status, longer, isKilled } of ends)
  test(`a batch that is ${status} while its lines run at three replicas${isKilled ? ', of which one is killed' : ''}: each line ends once, and costs only what was delivered`, async (t) => {
    const windowMs = status === 'expired' ? Math.ceil(30 * slowness) * 1_000 : 86_400_000;
    const { replicas, ledger } = await replicasOf(t, server, {
      config: `batches: { lines_running_max: 6, window_seconds: ${windowMs / 1_000} }\n`,
    });
    const [one, two, three] = replicas;
    const client = new BatchClient(three);
    const credit = await ledger.balance();
    const quick = 30;
    const customIds = Array.from({ length: 400 }, (_, index) => `line-${index}`);
    const { id } = await client.of(
      customIds.map((customId, index) => chatLine(customId, index < quick ? 'x' : longer)),
    );
    await until(
      async () =>
        (await client.get(id)).request_counts.completed >= quick &&
        (await Promise.all(replicas.map(linesRunning))).every((lines) => lines > 0),
      120_000,
    );
    const asked = performance.now();
    if (status === 'cancelled') await client.cancel(id);
    if (isKilled) await one.stop('SIGKILL');
    const batch = await client.when(id, isOver, 300_000);
    t.diagnostic(`over after ${Math.round(performance.now() - asked)} ms`);
    assert.equal(batch.status, status);
    assert.deepEqual(await Promise.all([two, three].map(linesRunning)), [0, 0]);
    const [answered, others] = [await client.results(batch.output_file_id), await client.results(batch.error_file_id)];
    const idsOf = (results: typeof answered) => results.map(({ custom_id: customId }) => customId);
    const inOrder = (ids: readonly string[]) => customIds.filter((customId) => ids.includes(customId));
    assert.deepEqual(idsOf(answered), inOrder(idsOf(answered)), 'once, and in their order');
    assert.deepEqual(idsOf(others), inOrder(idsOf(others)), 'once, and in their order');
    assert.equal(new Set([...idsOf(answered), ...idsOf(others)]).size, customIds.length);
    assert.deepEqual([...new Set(others.map(({ error }) => error?.code))], [`batch_${status}`]);
    const counts = { total: customIds.length, completed: answered.length, failed: others.length };
    assert.deepEqual(batch.request_counts, counts);
    const charged = (await ledger.everyRow()).filter(({ costMicrocents }) => costMicrocents > 0n);
    assert.deepEqual(
      charged.map(({ publicId }) => publicId).toSorted(),
      answered.map(({ response }) => response!.request_id).toSorted(),
    );
    assert.equal(await ledger.balance(), credit - charged.reduce((sum, { costMicrocents: cost }) => sum + cost, 0n));
    await two.verify();
  });

/** Lines hold credit while they run. */
async function linesRunning({ accountUrl }: TestService): Promise<number> {
  const text = await (await fetch(`${accountUrl}/metrics`)).text();
  return Number(/^tokenhouse_holds_open (\d+)/m.exec(text)![1]);
}
