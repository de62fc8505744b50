/** A service in front of scripted upstreams, and the look at one request that every fault of an upstream ends with. */
import assert from 'node:assert/strict';

import type { ErrorCode } from '../../src/platform/errors.ts';
import type { UsageRow } from '../../src/store/ledger.ts';
import {
  ask,
  assertNothingLeft,
  errorOf,
  endingsService,
  inputPrice,
  outputPrice,
  streamError,
} from '../endings/endings-service.ts';
import { TestLedger } from '../support/test-ledger.ts';
import { newRequestId } from '../support/raw-client.ts';
import { until } from '../support/service.ts';
import type { TestService } from '../support/service.ts';
import { chatChunk, event, Upstream, usageChunk } from '../support/upstream.ts';
import type { UpstreamExchange, UpstreamHandler } from '../support/upstream.ts';

/** Stands in everything that an upstream says by itself: nobody else may ever read it. */
export const secret = 'words-of-the-backend';

/** Tokens of every prompt, as the upstreams count them. */
export const promptTokens = 11;

export interface Answer {
  readonly id: string;
  readonly status: number;
  readonly headers: Headers;
  readonly body: string;
  /** Data of the events of a stream. */
  readonly events: readonly string[];
}

/** An upstream that counts prompts, answers looks, and plays the rest. */
export function upstreamThat(play: UpstreamHandler): Promise<Upstream> {
  return Upstream.start((exchange) => {
    if (exchange.path.endsWith('/tokenize')) exchange.json(200, { count: promptTokens, tokens: [] });
    else if (exchange.method === 'GET') exchange.json(200, { data: [] });
    else return play(exchange);
  });
}

/**
 * A model in front of servers at these addresses, for `HouseOptions.models`. They differ, so they are asked in this order:
 * the texts mean nothing while special tokens pass.
 */
export const remote = (id: string, urls: readonly string[], flavor = 'vllm', more = ''): string => `
- id: ${id}
  context_length: 16384
  pricing: { input_cents_per_million: ${inputPrice}, output_cents_per_million: ${outputPrice} }
  backends:
${urls.map((url, i) => `    - { engine: openai, name: ${id}-${i}, flavor: ${flavor}, url: "${url}", special_token_texts: [ "<${i}>" ]${more} }`).join('\n')}
`;

export const serviceBefore = (models: readonly string[], limits = ''): TestService =>
  endingsService({ models: models.join(''), limits });

/** A request for a model, read to its end. Every answer carries the id, and no answer a word of the backend (I9, U12). */
export async function askFor(
  service: TestService,
  model: string,
  stream: boolean,
  more: Readonly<Record<string, unknown>> = {},
  key = service.key,
): Promise<Answer> {
  let id = newRequestId();
  const send = (): Promise<Response> =>
    service.chat(ask('hi', { model, stream, max_tokens: 100, ...more }), { key, headers: { 'x-request-id': id } });
  let response = await send();
  // The slots of a proof that nothing is left are released a moment after its rows are there.
  await until(async () => {
    if (response.status !== 429) return true;
    const reported = response.clone();
    if (errorOf(await reported.text()).code !== 'concurrency_limit_exceeded') return true;
    id = newRequestId();
    response = await send();
    return false;
  });
  assert.equal(response.headers.get('x-request-id'), id);
  const body = await response.text();
  assert.ok(!body.includes(secret), 'nobody is shown what the backend says');
  assert.ok(!service.output.includes(secret), 'not even the operator');
  const events = [...body.matchAll(/^data: (.*)$/gm)].map((match) => match[1] ?? '');
  return { id, status: response.status, headers: response.headers, body, events };
}

/** The answer fails in the way that its table says, and costs nothing (docs/money.md). */
export async function assertFailed(
  ledger: TestLedger,
  answer: Answer,
  expected: { readonly code: ErrorCode; readonly status: number; readonly stream: boolean; readonly delivered: number },
): Promise<UsageRow> {
  const { code, status, stream, delivered } = expected;
  const isInStream = stream && delivered > 0;
  const shown = isInStream ? streamError(answer.events) : errorOf(answer.body);
  assert.equal(answer.status, isInStream ? 200 : status, answer.body);
  assert.deepEqual([shown.code, shown.request_id], [code, answer.id]);
  if (!isInStream) assert.match(answer.headers.get('content-type') ?? '', /^application\/json/);
  const row = await ledger.row(answer.id);
  assert.deepEqual([row.ending, row.errorCode, row.costMicrocents], ['failed', code, 0n]);
  if (delivered > 0) assert.ok(row.completionTokens >= delivered && row.unchargedMicrocents > 0n);
  else assert.deepEqual([row.completionTokens, row.unchargedMicrocents], [0, 0n]);
  return row;
}

interface Shown {
  readonly choices: readonly { readonly message?: { content: string }; readonly finish_reason: string | null }[];
  readonly usage?: Record<string, unknown> & {
    readonly prompt_tokens: number;
    readonly completion_tokens: number;
    readonly prompt_tokens_details?: { readonly cached_tokens: number };
    readonly completion_tokens_details?: { readonly reasoning_tokens: number };
  };
}

/** The answer is whole, and what was shown is what is recorded and charged (I4, I5). */
export async function assertAnswered(
  ledger: TestLedger,
  answer: Answer,
  expected: { readonly text: string; readonly stream: boolean },
): Promise<UsageRow> {
  assert.equal(answer.status, 200, answer.body);
  const chunks = expected.stream ? answer.events : [answer.body];
  if (expected.stream) assert.equal(chunks.at(-1), '[DONE]');
  const parsed = chunks.filter((chunk) => chunk !== '[DONE]').map((chunk) => JSON.parse(chunk) as Shown);
  const text = expected.stream
    ? answer.events.map((data) => /"content":"((?:[^"\\]|\\.)*)"/.exec(data)?.[1] ?? '').join('')
    : (parsed[0]?.choices[0]?.message?.content ?? '');
  assert.equal(text, expected.text);
  // I4: the row is there when the last byte is.
  const rows = await ledger.rows(answer.id);
  assert.equal(rows.length, 1);
  const row = rows[0]!;
  const usage = parsed.at(-1)?.usage;
  assert.ok(usage !== undefined, 'usage is shown');
  assert.deepEqual(
    [
      row.ending,
      row.errorCode,
      row.promptTokens,
      row.completionTokens,
      row.cachedTokens,
      row.reasoningTokens,
      row.unchargedMicrocents,
    ],
    [
      'finished',
      null,
      usage.prompt_tokens,
      usage.completion_tokens,
      usage.prompt_tokens_details?.cached_tokens ?? 0,
      usage.completion_tokens_details?.reasoning_tokens ?? 0,
      0n,
    ],
  );
  const list = BigInt(row.promptTokens) * inputPrice + BigInt(row.completionTokens) * outputPrice;
  assert.equal(row.costMicrocents, list);
  return row;
}

/** Runs, and requires that the balance moved by what the rows say, and that nothing is left behind (I1 to I3). */
export async function settled(service: TestService, act: (ledger: TestLedger) => Promise<void>): Promise<void> {
  const ledger = new TestLedger(service);
  const before = { balance: await ledger.balance(), cost: (await ledger.sums()).costMicrocents };
  await act(ledger);
  const cost = (await ledger.sums()).costMicrocents - before.cost;
  assert.equal(await ledger.balance(), before.balance - cost);
  await assertNothingLeft(service);
}

/** An answer as it should be: two words, with usage. */
export function answerWell(exchange: UpstreamExchange, first = 'Hel', second = 'lo'): void {
  exchange.events();
  exchange.chunk(chatChunk({ role: 'assistant', content: '' }));
  exchange.chunk(chatChunk({ content: first }));
  exchange.chunk(chatChunk({ content: second }));
  endWell(exchange);
}

export function endWell(exchange: UpstreamExchange, completionTokens = 2): void {
  exchange.chunk(chatChunk({}, 'stop'));
  exchange.chunk(usageChunk({ prompt_tokens: promptTokens, completion_tokens: completionTokens }));
  exchange.chunk(event('[DONE]'));
  exchange.endChunks();
}

/** A fault has its line for the operator: which backend, what, which status. */
export async function assertReported(
  service: TestService,
  backend: string,
  incident: string,
  status: number | null,
): Promise<void> {
  // The line may come after the answer.
  await until(() =>
    service.log
      .filter((line) => line['event'] === 'backend_incident')
      .map((line) => ({ ...line, ...(line['detail'] as object | undefined) }) as Record<string, unknown>)
      .some((line) => line['backend'] === backend && line['incident'] === incident && line['status'] === status),
  );
}
