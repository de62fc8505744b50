/**
 * SIGTERM while many requests run (reliability S7; invariants I1 to I5 and I9): what has begun ends as if nothing had
 * happened, what comes later is refused, and the process ends with 0. What becomes of a single request, and the readiness
 * that goes first, is in tests/endings/drained.test.ts.
 */
import assert from 'node:assert/strict';
import { Agent } from 'node:http';
import { test } from 'node:test';

import { assertNothingLeft, ask as bodyOf, cost, errorOf, endingsService } from '../../endings/endings-service.ts';
import { TestLedger } from '../../support/test-ledger.ts';
import { ask } from '../../support/http-client.ts';
import type { Answer } from '../../support/http-client.ts';
import { mulberry32 } from '../../support/random.ts';
import { newRequestId } from '../../support/raw-client.ts';
import { until } from '../../support/service.ts';
import type { TestService } from '../../support/service.ts';

const rounds = Number(process.env['TOKENHOUSE_STOPS'] ?? 8);
/** Fewer than may run at once, so that every refusal is one of the stop. */
const clients = 4;
const loadMsMax = 1_200;
/** Ten times what the longest script takes: the tests share their machine. */
const exitMsMax = 30_000;
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

interface Sent {
  readonly id: string;
  readonly text: string;
  readonly stream: boolean;
  readonly answer: Answer;
}

test(`stopped under load, ${rounds} times: what had begun is finished and charged, what came later is refused, exit 0`, async (t) => {
  const seed = Date.now() % 2 ** 32;
  t.diagnostic(`seed ${seed}`);
  const random = mulberry32(seed);
  const service = endingsService({ scripts, firstCreditCents: '400' });
  t.after(() => service.dispose());
  await service.start();
  const ledger = new TestLedger(service);
  const counts = { finished: 0, refused: 0, lost: 0, finishedAfterSignal: 0 };

  for (let round = 1; round <= rounds; round++) {
    const load = new Clients(service, random);
    await new Promise((resolve) => setTimeout(resolve, 100 + random() * loadMsMax));
    await until(() => load.sent.length > 0);
    const signalledAtMs = performance.now();
    const before = load.sent.length;
    assert.equal(await service.stop('SIGTERM'), 0);
    assert.ok(performance.now() - signalledAtMs < exitMsMax);
    const sent = await load.stop();

    await ledger.verify({ owned: false });
    assert.equal(await ledger.openRequests(), 0);
    for (const [index, request] of sent.entries()) {
      const outcome = await assertEnded(ledger, request);
      counts[outcome]++;
      if (outcome === 'finished' && index >= before) counts.finishedAfterSignal++;
      else if (outcome !== 'finished') assert.ok(index >= before, `${outcome} before the signal`);
    }
    // Many rounds use more than the proof at the end can hold at once.
    if ((await ledger.balance()) < 200_000_000n)
      assert.equal((await service.command('credits', 'grant', '--cents', '200')).code, 0);
    await service.start();
  }
  t.diagnostic(JSON.stringify(counts));
  assert.ok(counts.finishedAfterSignal > 0 && counts.lost + counts.refused > 0, 'the signals met running requests');
  await assertNothingLeft(service);
  await service.verify();
});

test('a second SIGTERM under load ends at once; what ran is recorded as crashed and not charged', async (t) => {
  const service = endingsService({ firstCreditCents: '400', limits: 'drain_timeout_seconds: 60' });
  t.after(() => service.dispose());
  await service.start();
  const ledger = new TestLedger(service);
  const balance = await ledger.balance();
  const running = Array.from({ length: clients }, (_, index) =>
    request(service, newRequestId(), index % 2 === 0 ? 'paced' : 'first token then silence', true, false),
  );
  await until(async () => (await ledger.openRequests()) === clients);
  process.kill(service.pid, 'SIGTERM');
  await until(() => service.output.includes('stopping'));
  assert.equal(await service.stop('SIGTERM'), 130);
  for (const answer of await Promise.all(running)) assert.ok(!answer.isWhole || answer.status !== 200);

  await service.start();
  const rows = await ledger.newest(100);
  assert.deepEqual(
    rows.map(({ ending, costMicrocents }) => [ending, costMicrocents]),
    Array.from({ length: clients }, () => ['crashed', 0n]),
  );
  assert.equal(await ledger.balance(), balance);
  await assertNothingLeft(service);
  await service.verify();
});

/** Each asks again and again until the port is closed. */
class Clients {
  readonly sent: Sent[] = [];
  readonly #agent = new Agent({ keepAlive: true });
  readonly #all: Promise<unknown>;
  #isStopping = false;

  constructor(service: TestService, random: () => number) {
    this.#all = Promise.all(
      Array.from({ length: clients }, async (_, index) => {
        while (!this.#isStopping) {
          const text = texts[Math.floor(random() * texts.length)]!;
          const stream = random() < 0.5;
          const id = newRequestId();
          const answer = await request(service, id, text, stream, index % 2 === 0 && this.#agent);
          this.sent.push({ id, text, stream, answer });
          if (answer.status === 0) return;
        }
      }),
    );
  }

  async stop(): Promise<readonly Sent[]> {
    this.#isStopping = true;
    await this.#all;
    this.#agent.destroy();
    return this.sent;
  }
}

function request(
  service: TestService,
  id: string,
  text: string,
  stream: boolean,
  agent: Agent | false,
): Promise<Answer> {
  const body = JSON.stringify(bodyOf(text, { stream }));
  const headers = { authorization: `Bearer ${service.key}`, 'x-request-id': id, 'content-type': 'application/json' };
  return ask({
    url: service.url,
    method: 'POST',
    path: '/v1/chat/completions',
    headers: { ...headers, 'content-length': String(Buffer.byteLength(body)) },
    body,
    agent,
    timeoutMs: 60_000,
  });
}

/** Finished and charged as shown, refused in words, or never arrived: nothing in between. */
async function assertEnded(
  ledger: TestLedger,
  { id, text, stream, answer }: Sent,
): Promise<'finished' | 'refused' | 'lost'> {
  const { status, body, isWhole } = answer;
  if (status === 0) {
    assert.deepEqual(await ledger.rows(id), [], `${id} was taken and got no answer`);
    return 'lost';
  }
  assert.ok(isWhole, `${id} was cut: ${text} ${status} ${body.slice(-200)}`);
  assert.equal(answer.headers['x-request-id'], id);
  if (status === 503) {
    assert.equal(errorOf(body).code, 'no_healthy_backends');
    assert.deepEqual(await ledger.rows(id), []);
    return 'refused';
  }
  assert.equal(status, 200, body);
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
