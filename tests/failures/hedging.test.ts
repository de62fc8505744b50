/** A second backend for requests that get no text in time: the first to give text wins, and is the only one that is charged. */
import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import type { UsageRow } from '../../src/store/ledger.ts';
import { newRequestId } from '../support/raw-client.ts';
import { InnerService, until } from '../support/service.ts';
import { TestLedger } from '../support/test-ledger.ts';
import { chatChunk, event, Upstream, usageChunk } from '../support/upstream.ts';
import type { UpstreamExchange } from '../support/upstream.ts';

const names = ['a', 'b'] as const;
const servers = new Map<string, Upstream>();
/** Requests that are held back, in the order in which they came. */
let held: { readonly name: string; readonly exchange: UpstreamExchange }[] = [];

/** Each server counts differently, so that the charge says whose usage it is. */
const answer = (name: string, exchange: UpstreamExchange): void => {
  const usage = usageChunk({ prompt_tokens: name === 'a' ? 4 : 5, completion_tokens: 1 });
  exchange.events();
  exchange.chunk(chatChunk({ content: `hello from ${name}` }) + chatChunk({}, 'stop') + usage + event('[DONE]'));
  exchange.endChunks();
};

let service: InnerService;
let ledger: TestLedger;
before(async () => {
  for (const name of names) servers.set(name, await Upstream.start((exchange) => void held.push({ name, exchange })));
  const model = (id: string, more: string): string => `  - id: ${id}
    context_length: 4096
    pricing: { input_cents_per_million: 5000, output_cents_per_million: 20000 }
${more}    backends:
${names.map((name) => `      - { engine: openai, name: ${name}, flavor: vllm, url: "${servers.get(name)!.url}" }`).join('\n')}`;
  service = await new InnerService({
    config: `models:\n${model('hedged', '    hedge: { after: 0.05 }\n')}\n${model('plain', '')}`,
  }).start();
  ledger = new TestLedger(service);
});
beforeEach(() => (held = []));
after(async () => {
  await service.verify();
  await service.dispose();
  for (const server of servers.values()) await server.close();
});

const ask = (model: string, init: { readonly signal?: AbortSignal; readonly id?: string } = {}) => {
  const { id = newRequestId(), signal } = init;
  const body = { model, messages: [{ role: 'user', content: 'Hello, how are you?' }] };
  return service.chat(body, { headers: { 'x-request-id': id }, ...(signal === undefined ? {} : { signal }) });
};
const attemptsOf = ({ attempts = [] }: UsageRow) =>
  attempts.map(({ backend, failed, hedge = null }) => ({ backend, failed, hedge }));
const both = async () => {
  await until(() => held.length === 2);
  const [first, second] = held as [(typeof held)[number], (typeof held)[number]];
  assert.notEqual(first.name, second.name);
  return [first, second] as const;
};

for (const winner of ['second', 'first'] as const)
  test(`the ${winner} gives text first: it is the answer and the charge, and the other is stopped`, async () => {
    const id = newRequestId();
    const asked = ask('hedged', { id });
    const [first, second] = await both();
    const [won, lost] = winner === 'first' ? [first, second] : [second, first];
    // What it says before its text is not taken for the other's.
    lost.exchange.events();
    lost.exchange.chunk(chatChunk({ role: 'assistant', content: '' }));
    answer(won.name, won.exchange);
    const text = await (await asked).text();
    assert.match(text, new RegExp(`hello from ${won.name}`));
    await lost.exchange.closed;
    const row = await ledger.row(id);
    assert.equal(row.costMicrocents, (won.name === 'a' ? 4n : 5n) * 5_000n + 20_000n);
    assert.equal(row.backend, won.name);
    assert.deepEqual(attemptsOf(row), [
      { backend: first.name, failed: null, hedge: winner === 'first' ? null : 'overtaken' },
      { backend: second.name, failed: null, hedge: winner === 'first' ? 'second_stopped' : 'second' },
    ]);
    const { stdout } = await service.command('explain', row.publicId);
    assert.match(stdout, winner === 'first' ? /stopped when the first gave text/ : /stopped when the second gave text/);
    // Why each was chosen is below it, in lines for a terminal of 80 columns.
    const chosen = stdout.split('\n').filter((line) => /^ {9}\S/.test(line));
    assert.ok(
      chosen.filter((line) => /^ +first token expected after \d+ ms; rank 1, one of 2$/.test(line)).length >= 1,
    );
    for (const line of chosen) assert.ok(line.length <= 80, line);
    assert.equal(held.length, 2);
  });

for (const failing of [0, 1])
  test(`where the ${failing === 0 ? 'first' : 'second'} of the two fails, the other is the answer`, async () => {
    const id = newRequestId();
    const asked = ask('hedged', { id });
    const two = await both();
    two[failing]!.exchange.json(500, {});
    const other = two[1 - failing]!;
    answer(other.name, other.exchange);
    assert.match(await (await asked).text(), new RegExp(`hello from ${other.name}`));
    assert.equal((await ledger.row(id)).backend, other.name);
  });

test('where both fail, the answer is the error, and nothing is charged', async () => {
  const id = newRequestId();
  const asked = ask('hedged', { id });
  for (const { exchange } of await both()) exchange.json(500, {});
  assert.equal((await asked).status, 502);
  const row = await ledger.row(id);
  assert.deepEqual([row.ending, row.costMicrocents], ['failed', 0n]);
  assert.deepEqual(
    attemptsOf(row).map(({ failed }) => failed),
    ['backend_http_error', 'backend_http_error'],
  );
});

test('a client that leaves stops both', async () => {
  const leaving = new AbortController();
  const id = newRequestId();
  const asked = ask('hedged', { id, signal: leaving.signal });
  const two = await both();
  leaving.abort();
  await assert.rejects(asked);
  for (const { exchange } of two) await exchange.closed;
  assert.equal((await ledger.row(id)).ending, 'client_left');
});

test('a model that says nothing of it asks one backend, however long it takes', async () => {
  const id = newRequestId();
  const asked = ask('plain', { id });
  await until(() => held.length === 1);
  // Longer than the other model would wait, as one of its requests shows.
  const other = ask('hedged');
  await until(() => held.length === 3);
  for (const { name, exchange } of held) answer(name, exchange);
  assert.equal((await asked).status, 200);
  assert.equal((await other).status, 200);
  assert.equal(attemptsOf(await ledger.row(id)).length, 1);
});
