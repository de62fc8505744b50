/** The endings that cut an answer, by tier: each is charged as it served, in every family, also at another backend and another model (docs/money.md). */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';

import { askRunningService } from '../../src/app/control/control-client.ts';
import { controlSocketPath } from '../../src/app/control/socket-path.ts';
import type { UsageRow } from '../../src/store/ledger.ts';
import { RawClient, newRequestId } from '../support/raw-client.ts';
import { until, type TestService } from '../support/service.ts';
import { TestLedger } from '../support/test-ledger.ts';
import { endingsService, inputPrice, outputPrice, verifyAndDispose } from './endings-service.ts';
import { assertTierCharged, families, parts, type Family, type Tier } from './tier-rows.ts';

const failing =
  '{ say: [ { text: "one two three" } ], fault: { after_tokens: 0, type: error, code: backend_overloaded } }';
const writing = `[ { when: { last_text: paced }, say: [ { text: [ "word " ] } ], repeat: 4000, pace_ms: 10 }, { when: { last_text: long }, say: [ { text: [ "word " ] } ], repeat: 8000 }, { when: { last_text: flood }, say: [ { text: [ "${'x'.repeat(2_000)}" ] } ], repeat: 16000 }, { when: { last_text: is cut }, say: [ { text: "one two three" } ], pace_ms: 2, fault: { after_tokens: 2, type: cut } }, { say: [ { text: hello } ] } ]`;
const model = (id: string, more: string, ...scripts: readonly string[]): string => `
- id: ${id}
  context_length: 1000000
  pricing: { input_cents_per_million: ${inputPrice}, output_cents_per_million: ${outputPrice} }
  tiers: { priority: { price_multiple: 1.5 }, flex: { price_multiple: 0.5 } }
${more}  backends:
${scripts.map((script, index) => `    - { engine: scripted, name: rank-${index + 1}, rank: ${index + 1}, scripts: ${script} }`).join('\n')}`;
const models = [
  model('direct', '', writing),
  model('retried', '', `[ ${failing} ]`, writing),
  model('instead', '  fallback: [ direct ]\n', `[ ${failing} ]`),
].join('');
/** Which of them serves a request for each. */
const served = { direct: 'direct', retried: 'retried', instead: 'direct' } as const;
type Detour = keyof typeof served;

const usual = endingsService({ models, firstCreditCents: '1000000', limits: 'reader_stall_timeout_seconds: 0.5' });
const hurried = endingsService({ models, limits: 'request_timeout_seconds: 0.7' });
before(() => Promise.all([usual.start(), hurried.start()]));
after(() => Promise.all([verifyAndDispose(usual), verifyAndDispose(hurried)]));

const operate = (service: TestService, request: Parameters<typeof askRunningService>[1]) =>
  askRunningService(controlSocketPath(join(service.folder, 'data')), request);

/** A key whose requests are of this tier, with a budget. */
async function newKey(service: TestService, tier: Tier, microcents?: bigint) {
  const made = await askRunningService(controlSocketPath(join(service.folder, 'data')), {
    kind: 'create_key',
    accountId: undefined,
    name: tier,
    expiresAt: undefined,
    limits: { tier },
    ...(microcents !== undefined && { budget: { microcents: String(microcents), per: 'total' } }),
  });
  assert.ok(made !== undefined);
  return made;
}

interface Ending {
  readonly name: string;
  readonly ending: UsageRow['ending'];
  readonly text: string;
  readonly service: TestService;
  readonly isCharged: boolean;
  /** The budget of its key in tokens of the tier's output. */
  readonly budgetTokens?: bigint;
  readonly does?: 'revoke' | 'stop reading';
}
const endings: readonly Ending[] = [
  { name: 'longer than allowed', ending: 'deadline', text: 'paced', service: hurried, isCharged: false },
  { name: 'the backend is lost', ending: 'failed', text: 'is cut', service: usual, isCharged: false },
  { name: 'out of credit', ending: 'credit', text: 'long', service: usual, isCharged: true, budgetTokens: 2_500n },
  { name: 'the key is revoked', ending: 'revoked', text: 'paced', service: usual, isCharged: true, does: 'revoke' },
  {
    name: 'the reader stalls',
    ending: 'reader_stalled',
    text: 'flood',
    service: usual,
    isCharged: true,
    does: 'stop reading',
  },
];

async function play(row: Ending, family: Family, detour: Detour, tier: Tier): Promise<void> {
  const { service, ending, isCharged, budgetTokens, does } = row;
  const budget = budgetTokens === undefined ? undefined : (budgetTokens * outputPrice * parts[tier]) / 10_000n;
  const { key, keyId } = await newKey(service, tier, budget);
  const id = newRequestId();
  const client = await RawClient.connect(service.url, { keepsBytes: false });
  const asked = JSON.stringify({ model: detour, ...family.body(row.text), ...longest(family), stream: true });
  client.send(
    `POST ${family.path} HTTP/1.1\r\nhost: test\r\nauthorization: Bearer ${key}\r\nx-request-id: ${id}\r\n` +
      `content-type: application/json\r\ncontent-length: ${Buffer.byteLength(asked)}\r\n\r\n${asked}`,
  );
  await until(() => client.bytesReceived > 0);
  if (does === 'stop reading') client.pause();
  if (does === 'revoke') await operate(service, { kind: 'revoke_key', keyId });
  const kept = await assertTierCharged(new TestLedger(service), id, tier, isCharged);
  assert.deepEqual([kept.ending, kept.modelId, kept.priceMultiple], [ending, served[detour], multipleOf(tier)]);
  assert.ok(kept.completionTokens > 0, 'it was cut in the middle');
  if (isCharged) assert.ok(kept.costMicrocents > 0n);
  assert.equal(kept.attempts?.length ?? 1, detour === 'direct' ? 1 : 2);
  if (budget !== undefined) assert.ok(kept.costMicrocents <= budget);
  client.reset();
}

const multipleOf = (tier: Tier): number | undefined => (tier === 'default' ? undefined : Number(parts[tier]));

/** Enough for an answer that its credit does not pay for. */
const longest = ({ path }: Family): object =>
  path === '/v1/completions' || path === '/v1/messages' ? { max_tokens: 200_000 } : {};

describe('endings that cut an answer, by tier', () => {
  for (const row of endings)
    describe(row.name, () => {
      for (const family of families.filter(({ model: measures }) => measures === undefined))
        for (const detour of Object.keys(served) as Detour[])
          it(`${family.path}, ${detour}`, async () => {
            await Promise.all((Object.keys(parts) as Tier[]).map((tier) => play(row, family, detour, tier)));
          });
      it('leaves no request open', () => until(async () => (await new TestLedger(row.service).openRequests()) === 0));
    });
});
