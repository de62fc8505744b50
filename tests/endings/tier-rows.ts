/** What the tests of tiers share: the families, and what a row of a tier has to be. */
import assert from 'node:assert/strict';

import type { UsageRow } from '../../src/store/ledger.ts';
import type { TestLedger } from '../support/test-ledger.ts';
import { inputPrice, outputPrice } from './endings-service.ts';

/** What a tier is of the usual price, in ten-thousandths. */
export const parts = { priority: 15_000n, default: 10_000n, flex: 5_000n } as const;
export type Tier = keyof typeof parts;

export interface Family {
  readonly path: string;
  readonly body: (text: string) => object;
  /** What asks for a tier: the body, or the key, where the API has no word for it. */
  readonly asksBy: 'body' | 'key';
  /** The name of a tier in an answer; undefined: it has none. */
  readonly shown?: (served: Tier) => string;
  /** The model that it asks, where it is not one that writes. */
  readonly model?: string;
}
const named = (served: Tier): string => served;
export const families: readonly Family[] = [
  {
    path: '/v1/chat/completions',
    body: (content) => ({ messages: [{ role: 'user', content }] }),
    asksBy: 'body',
    shown: named,
  },
  { path: '/v1/completions', body: (prompt) => ({ prompt, max_tokens: 500 }), asksBy: 'body', shown: named },
  { path: '/v1/responses', body: (input) => ({ input }), asksBy: 'body', shown: named },
  {
    path: '/v1/messages',
    body: (content) => ({ max_tokens: 500, messages: [{ role: 'user', content }] }),
    asksBy: 'key',
    shown: (served) => (served === 'priority' ? served : 'standard'),
  },
  { path: '/v1/embeddings', body: (input) => ({ input }), asksBy: 'key', model: 'embeds' },
  { path: '/v1/rerank', body: (text) => ({ query: 'why', documents: [text] }), asksBy: 'key', model: 'ranks' },
];

/** The row has the tier, its prices, and the charge that these make, to the microcent. Returns the row. */
export async function assertTierCharged(
  ledger: TestLedger,
  id: string,
  tier: Tier,
  isCharged: boolean,
): Promise<UsageRow> {
  const row = await ledger.row(id, 30_000);
  assert.equal(row.tier, tier);
  assert.deepEqual(
    [row.inputPrice, row.outputPrice],
    [inputPrice, outputPrice].map((price) => (price * 1_000_000n * parts[tier]) / 10_000n),
  );
  const list =
    (BigInt(row.promptTokens) * row.inputPrice + BigInt(row.completionTokens) * row.outputPrice + 999_999n) /
    1_000_000n;
  assert.deepEqual([row.costMicrocents, row.unchargedMicrocents], isCharged ? [list, 0n] : [0n, list]);
  assert.ok(row.costMicrocents <= row.holdMicrocents);
  return row;
}
