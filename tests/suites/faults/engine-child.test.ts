/**
 * The child of an embedded model ends, stops, grows, or is given what kills engines (reliability E1 to E3): only its own
 * requests notice, in the envelope or as an error event, nothing of them is charged, and the ledger is right (I1 to I5, I9).
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { TestLedger } from '../../support/test-ledger.ts';
import { TestService, until } from '../../support/service.ts';
import { writeTinyGguf } from '../../support/tiny-gguf.ts';
import { sha256Of } from '../../support/folder.ts';

const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-engine-child-'));
const modelFile = join(folder, 'words.gguf');
const words = Array.from({ length: 3000 }, (_, index) => ` w${index}`);
writeTinyGguf(modelFile, { script: [['assistant\n', ...words, '<|im_end|>']], dimensions: 128, contextLength: 8192 });
const sha256 = sha256Of(modelFile);

const model = (id: string, more: string): string => `  - id: ${id}
    context_length: 8192
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ { engine: llama, sources: [ "file:${modelFile}" ], sha256: ${sha256}, ${more} } ]`;

/** As patient as a busy machine makes it: what is awaited here is never a matter of speed. */
const patienceMs = 120_000;

let service: TestService;
let ledger: TestLedger;
before(async () => {
  service = new TestService({
    config: `models:\n${model('one', 'slots: 1')}\n${model('other', 'slots: 2')}\n${model('grows', 'slots: 1, memory_bytes_max: 1')}`,
    limits: '  first_token_timeout_seconds: 600\n  stream_idle_timeout_seconds: 600',
  });
  await service.start();
  ledger = new TestLedger(service);
  for (const id of ['one', 'other', 'grows']) await until(() => pidOf(id) !== undefined, patienceMs);
});
after(async () => {
  await service.dispose();
  rmSync(folder, { recursive: true, force: true });
});

/** The process id of the child that was ready last. */
function pidOf(id: string): number | undefined {
  const line = service.log.findLast((entry) => entry['event'] === 'llama_ready' && entry['model'] === id);
  return line?.['pid'] as number | undefined;
}

const eventsOf = (id: string): readonly unknown[] =>
  service.log
    .filter((entry) => entry['model'] === id && /^llama_/.test(String(entry['event'])))
    .map(({ event }) => event);

function isAlive(pid: number): boolean {
  const file = `/proc/${pid}/stat`;
  return existsSync(file) && !/^\d+ \(.*\) [ZX]/s.test(readFileSync(file, 'utf8'));
}

const ask = (id: string, maxTokens: number, more: object = {}, init: { signal?: AbortSignal } = {}) =>
  service.chat(
    { model: id, messages: [{ role: 'user', content: 'Hi' }], max_tokens: maxTokens, temperature: 0, ...more },
    init,
  );

interface Chunk {
  readonly choices?: readonly {
    readonly delta: { readonly content?: string };
    readonly finish_reason: string | null;
  }[];
  readonly usage?: { readonly prompt_tokens: number; readonly completion_tokens: number } | null;
  readonly error?: { readonly code: string };
}

/** A stream that is read in the background. */
class Reading {
  text = '';
  readonly id: string;
  readonly done: Promise<void>;
  constructor(response: Response) {
    this.id = response.headers.get('x-request-id') ?? '';
    this.done = (async () => {
      const decoder = new TextDecoder();
      for await (const bytes of response.body ?? []) this.text += decoder.decode(bytes as Uint8Array, { stream: true });
    })();
    this.done.catch(() => {});
  }
  get events(): readonly string[] {
    return this.text.split('\n\n').flatMap((event) => (event.startsWith('data: ') ? [event.slice(6)] : []));
  }
  get chunks(): readonly Chunk[] {
    return this.events.filter((event) => event !== '[DONE]').map((event) => JSON.parse(event) as Chunk);
  }
  get content(): string {
    return this.chunks.map(({ choices }) => choices?.[0]?.delta.content ?? '').join('');
  }
}

async function stream(id: string, maxTokens: number): Promise<Reading> {
  const reading = new Reading(await ask(id, maxTokens, { stream: true, stream_options: { include_usage: true } }));
  await until(() => reading.content !== '', patienceMs);
  return reading;
}

/** The charge stands when the client has seen the end (I4), and is for what it was shown (I5). */
async function assertCharged(reading: Reading, tokens: number): Promise<void> {
  assert.equal(reading.events.at(-1), '[DONE]');
  assert.equal(reading.content, words.slice(0, tokens).join(''));
  const usage = reading.chunks.findLast((chunk) => chunk.usage)?.usage;
  const rows = await ledger.rows(reading.id);
  assert.equal(rows.length, 1, `${reading.id}: ${rows.length} rows`);
  const [row] = rows;
  assert.equal(row?.ending, 'finished');
  assert.deepEqual([row.promptTokens, row.completionTokens], [usage?.prompt_tokens, usage?.completion_tokens]);
  assert.equal(row.completionTokens, tokens);
  assert.ok(row.costMicrocents > 0n);
}

async function assertUncharged(publicId: string): Promise<void> {
  const row = await ledger.row(publicId, patienceMs);
  assert.equal(row.costMicrocents, 0n);
  assert.equal(row.ending, 'failed');
}

async function assertWell(id: string): Promise<void> {
  // Asked until it is back: restarts take from 0.2 s on, and the load of the model.
  await until(async () => {
    const response = await ask(id, 1);
    const text = await response.text();
    if (response.status !== 200) await new Promise((resolve) => setTimeout(resolve, 100));
    else assert.match(text, /finish_reason/);
    return response.status === 200;
  }, patienceMs);
}

describe('the child of an embedded model', { timeout: 600_000 }, () => {
  for (const signal of ['SIGSEGV', 'SIGABRT', 'SIGSTOP'] as const) {
    test(`by ${signal} in mid-stream and before the first token ends its own requests and no others (E1)`, async () => {
      const running = await stream('one', 3000);
      // The only slot is taken: nothing has come of this one.
      const waiting = ask('one', 5);
      await until(async () => (await ledger.openRequests()) >= 2, patienceMs);
      const elsewhere = await stream('other', 400);
      const pid = pidOf('one');
      assert.ok(pid !== undefined);
      process.kill(pid, signal);

      const refused = await waiting;
      assert.equal(refused.status, 502);
      assert.ok(refused.headers.get('x-request-id'), 'I9');
      const envelope = (await refused.json()) as { readonly error: { readonly code: string } };
      assert.equal(envelope.error.code, 'backend_http_error');
      await running.done;
      assert.equal(running.events.at(-1), '[DONE]', 'I9');
      assert.equal(running.chunks.at(-1)?.error?.code, 'backend_http_error');
      assert.ok(!running.chunks.some(({ choices }) => choices?.[0]?.finish_reason), 'no finish before an error');
      await elsewhere.done;
      await assertCharged(elsewhere, 400);
      await assertUncharged(running.id);

      await assertWell('one');
      assert.notEqual(pidOf('one'), pid);
      assert.ok(!isAlive(pid));
      assert.deepEqual(eventsOf('other'), ['llama_ready']);
      await until(async () => (await ledger.openRequests()) === 0, patienceMs);
      await ledger.verify({ owned: true });
    });
  }

  test('that has grown is replaced between requests, and nobody is refused (E2)', async () => {
    for (let round = 0; round < 3; round++) {
      const reading = await stream('grows', 300);
      const pid = pidOf('grows');
      await reading.done;
      await assertCharged(reading, 300);
      if (round < 2) await until(() => pidOf('grows') !== pid, patienceMs);
    }
    assert.ok(eventsOf('grows').includes('llama_recycled'));
    assert.ok(!eventsOf('grows').includes('llama_lost'));
    await ledger.verify({ owned: true });
  });

  test('that a request has killed twice does not get it a third time (E3)', async () => {
    const poison = { messages: [{ role: 'user', content: 'a query of death' }], stream: true };
    for (let death = 0; death < 2; death++) {
      const reading = new Reading(await ask('one', 3000, poison));
      await until(() => reading.content !== '', patienceMs);
      process.kill(pidOf('one') ?? 0, 'SIGSEGV');
      await reading.done;
      assert.equal(reading.chunks.at(-1)?.error?.code, 'backend_http_error');
      await assertWell('one');
    }
    const pid = pidOf('one');
    const refused = await ask('one', 3000, poison);
    assert.equal(refused.status, 502);
    await refused.body?.cancel();
    assert.ok(pid !== undefined && isAlive(pid));
    await assertWell('one');
    assert.equal(pidOf('one'), pid);
    await ledger.verify({ owned: true });
  });

  test('survives token bombs, and its other streams go on (E3, section 3.4)', async () => {
    const pid = pidOf('other');
    const reading = await stream('other', 1500);
    const megabyte = 2 ** 20;
    const fill = (text: string, bytes = megabyte) => text.repeat(Math.floor(bytes / Buffer.byteLength(text)));
    const bombs: readonly (readonly [name: string, text: string])[] = [
      ['letters', 'Z'.repeat(131_072)],
      ['blanks', fill(' ')],
      ['lines', fill('\n')],
      ['Chinese', fill('漢字')],
      ['combining marks', `a${fill('\u0301')}`],
      ['base64', createHash('sha512').update('x').digest('base64').repeat(1000)],
      ['joined emoji', fill('👩\u200d')],
      ['words of 8,192 letters', fill(`${'Z'.repeat(8191)} `, 120_000)],
      ['tokens that steer', fill('<think></think><tool_call>', 120_000)],
      ['letters in between', fill('漢字かな交じり文、', 120_000)],
    ];
    for (const [name, content] of bombs) {
      const response = await ask('other', 1, { messages: [{ role: 'user', content }] });
      assert.ok([200, 400].includes(response.status), `${name}: ${response.status}`);
      await response.body?.cancel();
    }
    await reading.done;
    await assertCharged(reading, 1500);
    assert.equal(pidOf('other'), pid);
    assert.deepEqual(eventsOf('other'), ['llama_ready'], 'it never fell silent and never died');
    await until(async () => (await ledger.openRequests()) === 0, patienceMs);
    await ledger.verify({ owned: true });
  });

  test('does not outlive a service that is killed (E2)', async () => {
    const pids = ['one', 'other', 'grows'].map((id) => pidOf(id) ?? 0);
    await stream('other', 3000);
    await service.stop('SIGKILL');
    // One second is promised; a busy machine is given ten.
    await until(() => !pids.some(isAlive), 10_000);
  });
});
