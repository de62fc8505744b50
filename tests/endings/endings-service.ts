/** What the tests of endings share: models, prices, and the proof that after an ending nothing is left behind. */
import assert from 'node:assert/strict';

import { TestLedger } from '../support/test-ledger.ts';
import { RawClient, chatBytes, newRequestId } from '../support/raw-client.ts';
import { TestService, until } from '../support/service.ts';
import type { TestServiceOptions } from '../support/service.ts';

/** Models that fail at once, and after two tokens by an error or a cut, when they are asked to. */
export const failingScripts = `
- when: { last_text: fails at once }
  say: [ { text: "one two three" } ]
  fault: { after_tokens: 0, type: error, code: backend_overloaded }
- when: { last_text: fails later }
  say: [ { text: "one two three" } ]
  pace_ms: 2
  fault: { after_tokens: 2, type: error, code: backend_http_error }
- when: { last_text: is cut later }
  say: [ { text: "one two three" } ]
  pace_ms: 2
  fault: { after_tokens: 2, type: cut }
`;

/** Microcents for a token of `demo`: dear, so that a hold that is left behind is seen. */
export const inputPrice = 5_000n;
export const outputPrice = 20_000n;
/** Microcents for a token of `probe`: the smallest hold that `assertNothingLeft` can see. Every hold of `demo` is larger. */
const probePrice = 250_000n;
const probeTokensMax = 2_048n;

/** Requests of the account that may run at once. */
export const slots = 4;

export const cost = (promptTokens: number, completionTokens: number): bigint =>
  BigInt(promptTokens) * inputPrice + BigInt(completionTokens) * outputPrice;

export interface EndingsServiceOptions extends Omit<TestServiceOptions, 'config'> {
  /** Rules of the scripted model `demo`, before the ones that all tests have. */
  readonly scripts?: string;
  /** Further models, each a list item, not indented. */
  readonly models?: string;
}

/** A service with the scripted model `demo` and the models that the proofs need. */
export function endingsService({
  scripts = '',
  models = '',
  limits = '',
  ...options
}: EndingsServiceOptions = {}): TestService {
  const indented = (text: string, by: number): string => text.replace(/^(?=.)/gm, ' '.repeat(by));
  return new TestService({
    ...options,
    limits: `${limits}\n  concurrency_per_account_max: ${slots}`.trim().replace(/^\s*/gm, '  '),
    config: `models:
  - id: demo
    context_length: 16384
    pricing: { input_cents_per_million: ${inputPrice}, output_cents_per_million: ${outputPrice} }
    backends:
      - engine: scripted
        scripts:
${indented(scripts.trimEnd(), 10)}
          - when: { last_text: three words }
            say: [ { text: "one two three" } ]
          - when: { last_text: first token then silence }
            say: [ { text: "one two" } ]
            fault: { after_tokens: 1, type: hang }
          - when: { last_text: silence }
            say: [ { text: "one" } ]
            fault: { after_tokens: 0, type: hang }
          - when: { last_text: paced }
            say: [ { text: [ "word " ] } ]
            repeat: 4000
            pace_ms: 10
          - say: [ { text: "hello" } ]
  - id: probe
    context_length: 16384
    pricing: { input_cents_per_million: 0, output_cents_per_million: ${probePrice} }
    backends: [ { engine: scripted, scripts: [ { say: [] } ] } ]
${indented(models, 2)}`,
  });
}

/** The last look at the ledger, by the command that an operator has; then the service goes, also when it never came up. */
export async function verifyAndDispose(service: TestService): Promise<void> {
  try {
    await service.verify();
  } finally {
    await service.dispose();
  }
}

/** Body of a request for `demo`, whose last message chooses the script. */
export const ask = (text: string, more: Readonly<Record<string, unknown>> = {}): Record<string, unknown> => ({
  model: 'demo',
  messages: [{ role: 'user', content: text }],
  ...more,
});

/** Tokens of the prompt of `ask(text)`, as the scripted engine counts them. */
export const promptTokensOf = (text: string): number => 4 + Math.ceil(Buffer.byteLength(text) / 4);

/** A chat completion with an id of its own, over a socket that can do anything. */
export async function send(
  service: TestService,
  body: Readonly<Record<string, unknown>>,
  { key = service.key, keepsBytes = true } = {},
): Promise<{ readonly client: RawClient; readonly id: string }> {
  const id = newRequestId();
  const client = await RawClient.connect(service.url, { keepsBytes });
  client.send(chatBytes(key, id, body));
  return { client, id };
}

/** A request whose text chooses the script, over `fetch`, with everything that a test wants to know of the answer. */
export async function exchange(
  service: TestService,
  text: string,
  stream: boolean,
  more: Readonly<Record<string, unknown>> = {},
  key = service.key,
) {
  const id = newRequestId();
  const response = await service.chat(ask(text, { stream, ...more }), { key, headers: { 'x-request-id': id } });
  assert.equal(response.headers.get('x-request-id'), id);
  const body = await response.text();
  return { id, status: response.status, headers: response.headers, body, events: eventsOf(body) };
}

/** The inner object of an error answer or an error event. */
export interface ErrorShown {
  readonly code: string;
  readonly type: string;
  readonly request_id: string;
  readonly [extra: string]: unknown;
}

export const errorOf = (json: string): ErrorShown => (JSON.parse(json) as { error: ErrorShown }).error;

/** The error with which a stream ended: its last event but `[DONE]`, with no usage before it (contracts §1.0). */
export function streamError(events: readonly string[]): ErrorShown {
  assert.equal(events.at(-1), '[DONE]', 'a stream ends in [DONE], an error too');
  assert.ok(!events.some((event) => event.includes('"usage":{')), 'no usage is shown for an answer that failed');
  return errorOf(events.at(-2) ?? '');
}

/** Data of all events of an answer that is read with `fetch`. */
const eventsOf = (text: string): string[] => [...text.matchAll(/^data: (.*)$/gm)].map((match) => match[1] ?? '');

/**
 * The state after every ending: the ledger is right, no hold is left (a request that needs the whole balance is funded),
 * no slot is left (as many requests as may run at once are let in, and one more is not).
 */
export async function assertNothingLeft(service: TestService): Promise<void> {
  const ledger = new TestLedger(service);
  await assertNoHoldLeft(service, ledger);
  await assertNoSlotLeft(service, ledger);
  await ledger.verify({ owned: true });
}

/** A request whose hold is the whole balance, and which costs nothing, because it says nothing. */
async function assertNoHoldLeft(service: TestService, ledger: TestLedger): Promise<void> {
  const balance = await ledger.balance();
  assert.ok(balance >= 0n, `the balance is ${balance}`);
  const tokens = balance / probePrice;
  assert.ok(tokens >= 1n && tokens <= probeTokensMax, `the probe cannot hold a balance of ${balance}`);
  const body = { model: 'probe', max_tokens: Number(tokens), messages: [{ role: 'user', content: 'all' }] };
  let last = '';
  await until(async () => {
    const answer = await service.chat(body);
    last = `${answer.status} ${await answer.text()}`;
    return answer.status === 200;
  }, 5_000).catch(() => assert.fail(`a request that needs the whole balance of ${balance} gets ${last}`));
}

/** Fills all slots with requests that stand still, sees that one more is refused, and lets them go. */
async function assertNoSlotLeft(service: TestService, ledger: TestLedger): Promise<void> {
  const before = await ledger.sums();
  const standing: RawClient[] = [];
  await until(async () => {
    const { client } = await send(service, ask('first token then silence', { stream: true, max_tokens: 2 }));
    await until(() => client.status !== 0);
    if (client.status === 200) standing.push(client);
    else client.reset();
    return standing.length === slots;
  }, 5_000);
  const refused = await service.chat(ask('three words'));
  assert.equal(refused.status, 429);
  assert.equal(errorOf(await refused.text()).code, 'concurrency_limit_exceeded');
  for (const client of standing) client.reset();
  await until(async () => (await ledger.sums()).count >= before.count + slots, 5_000);
}
