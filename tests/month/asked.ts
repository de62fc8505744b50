/** Requests that clients send to a service, which end in each way that a client can see. */
import assert from 'node:assert/strict';
import { scriptedModel, type TestService } from '../support/service.ts';
import type { UsageRow } from '../../src/store/ledger.ts';

export const model =
  scriptedModel(`- { when: { last_text: slow }, say: [{ text: ["word "] }], repeat: 500, pace_ms: 20 }
- { when: { last_text: fails }, say: [{ text: "one two three" }], fault: { after_tokens: 0, type: error, code: backend_http_error } }
- { say: [{ text: "one two three four five six seven eight" }] }`);

const lanes = 8;
/** Microcents of a token of the scripted model. */
const [inputPrice, outputPrice] = [5n, 20n];

export interface Reported {
  readonly id: string;
  readonly usage: { readonly prompt_tokens: number; readonly completion_tokens: number } | undefined;
}

/** Starts the service, sends this many, and stops it. Resolves with what the clients got. */
export async function askThroughService(service: TestService, count: number): Promise<readonly Reported[]> {
  await service.start();
  const reported: Reported[] = [];
  let next = 0;
  await Promise.all(
    Array.from({ length: lanes }, async () => {
      while (next < count) reported.push(await ask(service, next++));
    }),
  );
  // A request that its client has left is settled before the service has ended.
  assert.equal(await service.stop(), 0);
  assert.equal(reported.length, count);
  return reported;
}

/** What the ledger has of them. */
export function compareAsked(reported: readonly Reported[], rows: readonly UsageRow[]): void {
  assert.equal(rows.length, reported.length);
  const byId = new Map(rows.map((row) => [row.publicId, row]));
  for (const { id, usage } of reported) {
    const row = byId.get(id);
    assert.ok(row, id);
    const { promptTokens, completionTokens, costMicrocents } = row;
    if (usage !== undefined)
      assert.deepEqual([promptTokens, completionTokens], [usage.prompt_tokens, usage.completion_tokens]);
    const list = BigInt(promptTokens) * inputPrice + BigInt(completionTokens) * outputPrice;
    assert.equal(costMicrocents, row.ending === 'failed' ? 0n : list, id);
  }
  for (const [ending, finish] of [
    ['finished', 'stop'],
    ['finished', 'length'],
    ['client_left', null],
    ['failed', null],
  ] as const)
    assert.ok(
      rows.some((row) => row.ending === ending && (finish === null || row.finish === finish)),
      ending,
    );
}

const message = (content: string) => ({ model: 'demo', messages: [{ role: 'user', content }] });

async function ask(service: TestService, index: number): Promise<Reported> {
  const idOf = (answer: Response): string => answer.headers.get('x-request-id')!;
  switch (index % 5) {
    case 0: {
      const leaving = new AbortController();
      const answer = await service.chat({ ...message('slow'), stream: true }, { signal: leaving.signal });
      const reader = answer.body!.getReader();
      await reader.read();
      leaving.abort();
      return { id: idOf(answer), usage: undefined };
    }
    case 1: {
      const answer = await service.chat(message('fails'));
      assert.equal(answer.status, 502, await answer.text());
      return { id: idOf(answer), usage: undefined };
    }
    default: {
      const answer = await service.chat({ ...message('hello'), ...(index % 5 === 2 ? { max_tokens: 3 } : {}) });
      assert.equal(answer.status, 200);
      return { id: idOf(answer), usage: ((await answer.json()) as { usage: Reported['usage'] }).usage };
    }
  }
}
