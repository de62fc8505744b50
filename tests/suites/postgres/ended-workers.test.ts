/** Workers and their parent that die or are stopped under load: what has begun elsewhere goes on, and money is exact. */
import assert from 'node:assert/strict';
import { Agent } from 'node:http';
import { after, before, test } from 'node:test';
import type { TestContext } from 'node:test';

import { ask as bodyOf, cost, errorOf, endingsService } from '../../endings/endings-service.ts';
import { TestLedger } from '../../support/test-ledger.ts';
import { ask } from '../../support/http-client.ts';
import type { Answer } from '../../support/http-client.ts';
import { mulberry32 } from '../../support/random.ts';
import { newRequestId } from '../../support/raw-client.ts';
import { until } from '../../support/service.ts';
import type { TestService } from '../../support/service.ts';
import { at, isAlive, longMs, replaced, send, report, workersOf } from '../../support/workers.ts';
import { PostgresServer } from './server.ts';

const workers = 3;
let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start({ fsync: 'off' });
});
after(() => server.dispose());
const clients = 8;
const scripts = `
- when: { last_text: instant }
  say: [ { text: "one two three" } ]
- when: { last_text: a moment }
  say: [ { text: [ "word " ] } ]
  repeat: 30
  pace_ms: 5
- when: { last_text: a while }
  say: [ { text: [ "word " ] } ]
  repeat: 150
  pace_ms: 10
`;
const texts = ['instant', 'a moment', 'a while', 'a while'];

/** With room for all clients at one worker. */
async function begin(t: TestContext, count: number): Promise<TestService> {
  const database = await server.createDatabase();
  const service = endingsService({ scripts, workers: count, database, firstCreditCents: '100000' });
  t.after(() => service.dispose());
  await service.start();
  await report(service, { kind: 'limit_account', accountId: service.accountId, limits: { concurrencyMax: 64 } });
  return service;
}

interface Asked {
  readonly id: string;
  readonly stream: boolean;
  readonly answer: Answer;
}

/** Each asks again and again until it is stopped, or the port is closed. */
class Clients {
  readonly sent: Asked[] = [];
  readonly #agent = new Agent({ keepAlive: true });
  readonly #all: Promise<unknown>;
  #isStopping = false;

  constructor(service: TestService, random: () => number, { endsAtLoss }: { readonly endsAtLoss: boolean }) {
    this.#all = Promise.all(
      Array.from({ length: clients }, async (_, index) => {
        while (!this.#isStopping) {
          const text = texts[Math.floor(random() * texts.length)]!;
          const stream = random() < 0.5;
          const id = newRequestId();
          const body = JSON.stringify(bodyOf(text, { stream }));
          const answer = await ask({
            url: service.url,
            method: 'POST',
            path: '/v1/chat/completions',
            headers: {
              authorization: `Bearer ${service.key}`,
              'x-request-id': id,
              'content-type': 'application/json',
              'content-length': String(Buffer.byteLength(body)),
            },
            body,
            agent: index % 2 === 0 && this.#agent,
            timeoutMs: longMs,
          });
          this.sent.push({ id, stream, answer });
          if (answer.status === 0 && endsAtLoss) return;
        }
      }),
    );
  }

  async stop(): Promise<readonly Asked[]> {
    this.#isStopping = true;
    await this.#all;
    this.#agent.destroy();
    return this.sent;
  }
}

/** Whole answers are charged as shown; what was cut is charged nothing, or was settled when it was cut. */
async function assertCharged(
  ledger: TestLedger,
  { id, stream, answer }: Asked,
): Promise<'finished' | 'cut' | 'refused'> {
  const { status, body, isWhole } = answer;
  if (status !== 200 || !isWhole) {
    const rows = await ledger.rows(id);
    assert.ok(rows.length <= 1, id);
    for (const { ending, costMicrocents } of rows)
      assert.ok(ending === 'finished' || (ending === 'crashed' && costMicrocents === 0n), `${id} ${ending}`);
    if (status === 503) assert.equal(errorOf(body).code, 'no_healthy_backends');
    else assert.ok(status === 0 || !isWhole, `${id} ${status} ${body}`);
    return status === 503 ? 'refused' : 'cut';
  }
  const last = stream ? /\ndata: (.*)\n\ndata: \[DONE\]\n\n$/.exec(body)?.[1] : body;
  const { usage } = JSON.parse(last ?? '{}') as { usage?: { prompt_tokens: number; completion_tokens: number } };
  assert.ok(usage !== undefined, body.slice(-300));
  const row = await ledger.row(id);
  assert.deepEqual(
    [row.ending, row.promptTokens, row.completionTokens, row.costMicrocents],
    ['finished', usage.prompt_tokens, usage.completion_tokens, cost(usage.prompt_tokens, usage.completion_tokens)],
  );
  return 'finished';
}

test('kill -9 of workers under load: the others go on, each comes back, nothing is lost and nothing billed twice', async (t) => {
  const seed = Date.now() % 2 ** 32;
  t.diagnostic(`seed ${seed}`);
  const random = mulberry32(seed);
  const service = await begin(t, workers);
  const ledger = new TestLedger(service);
  const credit = await ledger.balance();
  const load = new Clients(service, random, { endsAtLoss: false });
  const kills = 6;
  for (let kill = 0; kill < kills; kill++) {
    const before = load.sent.length;
    await until(() => load.sent.length >= before + 3 * clients, longMs);
    const others = workersOf(service);
    assert.equal(others.length, workers);
    const killing = replaced(service, others[kill % workers]!, workers);
    // In the moment of the death too: a client that connects is answered by one of the others.
    const answer = await service.chat(bodyOf('instant'), { headers: { connection: 'close' } }).catch(() => undefined);
    await answer?.arrayBuffer();
    await killing;
    await ledger.verify({ owned: true });
  }
  const sent = await load.stop();
  const counts = { finished: 0, cut: 0, refused: 0 };
  for (const one of sent) counts[await assertCharged(ledger, one)]++;
  t.diagnostic(JSON.stringify(counts));
  assert.ok(counts.finished > counts.cut && counts.cut > 0 && counts.refused === 0, JSON.stringify(counts));
  assert.ok(counts.cut <= kills * clients);
  assert.equal(service.log.filter(({ event }) => event === 'worker_ended').length, kills);
  assert.equal(await ledger.balance(), credit - (await ledger.sums()).costMicrocents);
  assert.equal(await service.stop(), 0);
  assert.equal(await ledger.openRequests(), 0);
  await service.verify();
});

test('what a killed worker ran is recorded as crashed and charged nothing, and its money comes back', async (t) => {
  const service = await begin(t, 2);
  const ledger = new TestLedger(service);
  const balance = await ledger.balance();
  const [one, two] = workersOf(service) as [number, number];
  const lost = [];
  for (let index = 0; index < 3; index++)
    lost.push(await at(service, one, () => send(service, bodyOf('paced', { stream: true }))));
  const kept = await at(service, two, () => send(service, bodyOf('paced', { stream: true, max_tokens: 400 })));
  await until(async () => (await ledger.openRequests()) === 4, longMs);
  const killing = replaced(service, one, 2);
  const crashed = async () => (await ledger.newest(10)).filter(({ ending }) => ending === 'crashed');
  await until(async () => (await crashed()).length === 3, longMs);
  for (const { client } of lost) await client.closed;
  for (const { costMicrocents } of await crashed()) assert.equal(costMicrocents, 0n);
  await until(() => kept.client.tail(32).includes('[DONE]'), longMs);
  assert.equal((await ledger.row(kept.id)).ending, 'finished');
  await killing;
  assert.equal(workersOf(service).length, 2);
  assert.ok(!workersOf(service).includes(one) && workersOf(service).includes(two));
  assert.equal(await ledger.balance(), balance - (await ledger.row(kept.id)).costMicrocents);
  await ledger.verify({ owned: true });
  assert.equal(await service.stop(), 0);
  await service.verify();
});

test('kill -9 of the parent: the workers end, and the next start finds everything as it should be', async (t) => {
  const service = await begin(t, workers);
  const ledger = new TestLedger(service);
  const credit = await ledger.balance();
  const load = new Clients(service, mulberry32(1), { endsAtLoss: true });
  await until(() => load.sent.length >= 20, longMs);
  const running = await send(service, bodyOf('paced', { stream: true }));
  await until(() => running.client.events.length > 0, longMs);
  await until(async () => (await ledger.openRequests()) > 0, longMs);
  const orphans = workersOf(service);
  assert.equal(orphans.length, workers);
  await service.stop('SIGKILL');
  await until(() => !orphans.some(isAlive), longMs);
  await running.client.closed;
  const sent = await load.stop();

  await service.start();
  await until(async () => (await ledger.openRequests()) === 0, longMs);
  await ledger.verify({ owned: true });
  for (const one of sent) await assertCharged(ledger, one);
  const rows = await ledger.newest(1_000);
  assert.ok(rows.some(({ ending }) => ending === 'crashed'));
  assert.equal(await ledger.balance(), credit - (await ledger.sums()).costMicrocents);
  const answer = await service.chat(bodyOf('instant'));
  assert.equal(answer.status, 200, await answer.text());
  assert.equal(await service.stop(), 0);
  await service.verify();
});

test('SIGTERM under load: what had begun is finished and charged at all workers, what came later is refused, exit 0', async (t) => {
  const random = mulberry32(Date.now() % 2 ** 32);
  const service = await begin(t, workers);
  const ledger = new TestLedger(service);
  const counts = { finished: 0, cut: 0, refused: 0 };
  for (let round = 0; round < 3; round++) {
    if (round > 0) await service.start();
    const load = new Clients(service, random, { endsAtLoss: true });
    await until(() => load.sent.length >= 10, longMs);
    const ended = workersOf(service);
    // A service manager tells the whole group.
    for (const pid of ended) process.kill(pid, 'SIGTERM');
    assert.equal(await service.stop('SIGTERM'), 0);
    assert.ok(!ended.some(isAlive));
    for (const one of await load.stop()) {
      const outcome = await assertCharged(ledger, one);
      counts[outcome]++;
      if (outcome === 'cut') {
        assert.equal(one.answer.status, 0, `${one.id} had begun`);
        assert.deepEqual(await ledger.rows(one.id), []);
      }
    }
    assert.equal(await ledger.openRequests(), 0);
    await ledger.verify({ owned: false });
  }
  t.diagnostic(JSON.stringify(counts));
  assert.ok(counts.finished > 0 && counts.cut > 0);
  await service.verify();
});

test('a worker that does not stay alive ends the service, in words', async (t) => {
  const service = await begin(t, 2);
  const exited = service.exited();
  let killed = 0;
  await until(() => {
    for (const pid of workersOf(service)) {
      process.kill(pid, 'SIGKILL');
      killed++;
    }
    return service.hasEnded;
  }, longMs);
  assert.deepEqual(await exited, { code: 69, signal: null });
  assert.match(service.output, /Worker \d ended 5 times in a row soon after its start/);
  assert.ok(killed >= 5);
  await service.verify();
});
