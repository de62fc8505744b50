/** kill -9 in the middle of everything, many times on the same data (reliability S1; invariants I1 to I6). */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { TestLedger } from '../../support/test-ledger.ts';
import { mulberry32 } from '../../support/random.ts';
import { RawClient, chatBytes, newRequestId } from '../../support/raw-client.ts';
import { TestService, until } from '../../support/service.ts';

const rounds = Number(process.env['TOKENHOUSE_KILLS'] ?? 50);
/** Clients that send one request after the other until the process dies. */
const clients = 8;
/** The longest that a round runs before the kill. */
const loadMsMax = 600;
/** Ten times what is promised, and three times that, because the tests share their machine. */
const readyMsMax = 60_000;

const inputPrice = 50n;
const outputPrice = 200n;
/** Microcents for a token of the probe: the smallest hold that would be missed. Every hold of `demo` is larger. */
const probePrice = 250_000n;

const config = `models:
  - id: demo
    context_length: 16384
    pricing: { input_cents_per_million: ${inputPrice}, output_cents_per_million: ${outputPrice} }
    backends:
      - engine: scripted
        scripts:
          - when: { last_text: instant }
            say: [ { text: "one two three" } ]
          - when: { last_text: short }
            say: [ { text: [ "word " ] } ]
            repeat: 10
            pace_ms: 3
          - when: { last_text: long }
            say: [ { text: [ "word " ] } ]
            repeat: 4000
            pace_ms: 2
          - say: [ { text: [ "word " ] } ]
            repeat: 3000
  - id: probe
    context_length: 16384
    pricing: { input_cents_per_million: 0, output_cents_per_million: ${probePrice} }
    backends: [ { engine: scripted, scripts: [ { say: [] } ] } ]
`;
const scripts = ['instant', 'instant', 'short', 'long', 'bulk'];

/** An answer that a client has seen to its end. */
interface Seen {
  readonly id: string;
  readonly promptTokens: number;
  readonly completionTokens: number;
}

test(`kill -9 in mid-stream, ${rounds} times: the ledger is right, nothing is billed twice, no finished answer is unbilled, no hold is left`, async (t) => {
  const seed = Date.now() % 2 ** 32;
  t.diagnostic(`seed ${seed}`);
  const random = mulberry32(seed);
  const service = new TestService({ config, firstCreditCents: '500', limits: '  concurrency_per_account_max: 64' });
  t.after(() => service.dispose());
  await service.start();
  const ledger = new TestLedger(service);
  const credit = await ledger.balance();
  const phases = { seen: 0, crashed: 0, cutInAnswer: 0 };
  const startsMs: number[] = [];

  for (let round = 1; round <= rounds; round++) {
    const seen: Seen[] = [];
    const sent: string[] = [];
    const killed = new AbortController();
    const load = Promise.all(
      Array.from({ length: clients }, async () => {
        while (!killed.signal.aborted) {
          const id = newRequestId();
          sent.push(id);
          const outcome = await oneRequest(
            service,
            id,
            scripts[Math.floor(random() * scripts.length)]!,
            random() < 0.5,
          );
          if (outcome === 'cut') phases.cutInAnswer++;
          else if (outcome !== 'lost') seen.push(outcome);
        }
      }),
    );
    // The phase is the fault's: any moment of the load; what runs for 250 ms is written down, and some has to be.
    await new Promise((resolve) => setTimeout(resolve, random() * loadMsMax));
    const exit = service.stop('SIGKILL');
    killed.abort();
    await Promise.all([exit, load]);

    const restartedAt = performance.now();
    await service.start();
    startsMs.push(performance.now() - restartedAt);
    assert.ok(startsMs.at(-1)! < readyMsMax);
    await ledger.verify({ owned: true });
    assert.equal(await ledger.openRequests(), 0, 'M8: what was running is recorded');
    await assertBilledOnce(ledger, sent, seen);
    await assertNoHoldLeft(service, ledger, credit);
    phases.seen += seen.length;
  }
  phases.crashed = (await ledger.newest(1_000)).filter(({ ending }) => ending === 'crashed').length;
  t.diagnostic(`${JSON.stringify(phases)}, ready after ${inWords(startsMs)}`);
  assert.ok(
    phases.seen > rounds && phases.cutInAnswer > rounds / 2 && phases.crashed > 0,
    'the kills met requests in every phase',
  );
  await service.stop();
  await service.verify();
});

const inWords = (ms: readonly number[]): string => {
  const sorted = ms.toSorted((a, b) => a - b);
  return `${sorted[Math.floor(sorted.length / 2)]!.toFixed(0)} ms (median), ${sorted.at(-1)!.toFixed(0)} ms (longest)`;
};

/** What was seen to its end; `cut` in the middle; `lost` without a byte, or nobody listens any more. */
async function oneRequest(
  service: TestService,
  id: string,
  script: string,
  stream: boolean,
): Promise<Seen | 'cut' | 'lost'> {
  let client: RawClient;
  try {
    client = await RawClient.connect(service.url);
  } catch {
    return 'lost';
  }
  client.send(chatBytes(service.key, id, { model: 'demo', stream, messages: [{ role: 'user', content: script }] }));
  const isWhole = (): boolean => (stream ? client.tail(64).includes('data: [DONE]\n\n') : isWholeBody(client.text));
  await until(() => client.isClosed || isWhole(), 60_000);
  const isSeen = isWhole();
  client.reset();
  if (!isSeen) return client.bytesReceived > 0 ? 'cut' : 'lost';
  assert.equal(client.status, 200, client.text);
  const body = stream ? client.events.at(-2) : client.text.slice(client.text.indexOf('\r\n\r\n') + 4);
  const { usage } = JSON.parse(body ?? '') as { usage?: { prompt_tokens: number; completion_tokens: number } };
  assert.ok(usage !== undefined, body);
  return { id, promptTokens: usage.prompt_tokens, completionTokens: usage.completion_tokens };
}

function isWholeBody(text: string): boolean {
  const head = text.indexOf('\r\n\r\n');
  const length = Number(/\r\ncontent-length: (\d+)/i.exec(text)?.[1] ?? NaN);
  return head >= 0 && Buffer.byteLength(text.slice(head + 4)) === length;
}

/** I4, I5, M3: every complete answer has one row that says what was shown; no request has two. */
async function assertBilledOnce(ledger: TestLedger, sent: readonly string[], seen: readonly Seen[]): Promise<void> {
  const rows = new Map<
    string,
    {
      readonly ending: string;
      readonly promptTokens: number;
      readonly completionTokens: number;
      readonly costMicrocents: bigint;
    }
  >();
  const ours = new Set(sent);
  for (const row of await ledger.newest(1_000)) {
    if (!ours.has(row.publicId)) continue;
    assert.ok(!rows.has(row.publicId), `${row.publicId} has two rows`);
    rows.set(row.publicId, row);
  }
  for (const { id, promptTokens, completionTokens } of seen) {
    const row = rows.get(id);
    assert.ok(row !== undefined, `${id} was answered and is not recorded`);
    assert.deepEqual(
      [row.ending, row.promptTokens, row.completionTokens, row.costMicrocents],
      [
        'finished',
        promptTokens,
        completionTokens,
        BigInt(promptTokens) * inputPrice + BigInt(completionTokens) * outputPrice,
      ],
    );
  }
}

/** What is spendable is the credit less what was charged: a request that needs (nearly) all of it is funded. */
async function assertNoHoldLeft(service: TestService, ledger: TestLedger, credit: bigint): Promise<void> {
  const balance = await ledger.balance();
  assert.equal(balance, credit - (await ledger.sums()).costMicrocents);
  const tokens = Number(balance / probePrice);
  assert.ok(tokens > 0 && tokens <= 2_048, `the probe cannot hold ${balance}`);
  const answer = await service.chat({
    model: 'probe',
    max_tokens: tokens,
    messages: [{ role: 'user', content: 'all' }],
  });
  const text = await answer.text();
  assert.equal(answer.status, 200, text);
}
