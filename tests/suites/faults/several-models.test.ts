/**
 * Two embedded models of which only one fits into memory, with requests for both: all are answered and billed, whatever happens while
 * one is loaded for the other.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { newRequestId } from '../../support/raw-client.ts';
import { TestLedger } from '../../support/test-ledger.ts';
import { TestService, until } from '../../support/service.ts';
import { writeTinyGguf } from '../../support/tiny-gguf.ts';
import { sha256Of } from '../../support/folder.ts';

const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-several-'));
const ids = ['first', 'second'] as const;
type Id = (typeof ids)[number];
const words = (id: Id): readonly string[] => Array.from({ length: 2000 }, (_, index) => ` ${id}${index}`);

function model(id: Id): string {
  const path = join(folder, `${id}.gguf`);
  writeTinyGguf(path, { script: [['assistant\n', ...words(id), '<|im_end|>']], contextLength: 4096 });
  const sha256 = sha256Of(path);
  return `  - id: ${id}
    context_length: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ { engine: llama, sources: [ "file:${path}" ], sha256: ${sha256}, slots: 2, threads: 1 } ]
`;
}

const patienceMs = 120_000;
let service: TestService;
let ledger: TestLedger;
before(async () => {
  service = new TestService({
    config: `models:\n${ids.map(model).join('')}`,
    limits:
      '  drain_timeout_seconds: 3\n  embedded_memory_bytes_max: 390000000\n  first_token_timeout_seconds: 600\n  stream_idle_timeout_seconds: 600',
  });
  await service.start();
  ledger = new TestLedger(service);
  await until(() => service.log.some(({ event }) => event === 'llama_ready'), patienceMs);
});
after(async () => {
  await service.dispose();
  rmSync(folder, { recursive: true, force: true });
});

const ask = (id: Id, maxTokens: number, { stream = false, signal, requestId = newRequestId() }: Asked = {}) =>
  service.chat(
    { model: id, messages: [{ role: 'user', content: 'Hi' }], max_tokens: maxTokens, temperature: 0, stream },
    { headers: { 'x-request-id': requestId }, ...(signal === undefined ? {} : { signal }) },
  );
interface Asked {
  readonly stream?: boolean;
  readonly signal?: AbortSignal;
  readonly requestId?: string;
}

/** What an answer says, whole or streamed. */
async function said(response: Response, stream: boolean): Promise<string> {
  const text = await response.text();
  assert.equal(response.status, 200, text);
  interface Answer {
    readonly choices: readonly [
      { readonly message?: { readonly content: string }; readonly delta?: { readonly content?: string } },
    ];
  }
  const parsed = (json: string): Answer => JSON.parse(json) as Answer;
  if (!stream) return parsed(text).choices[0].message?.content ?? '';
  const events = text.split('\n\n').flatMap((event) => (event.startsWith('data: ') ? [event.slice(6)] : []));
  assert.equal(events.at(-1), '[DONE]');
  return events
    .slice(0, -1)
    .map((event) => parsed(event).choices[0]?.delta?.content ?? '')
    .join('');
}

interface Listed {
  readonly id: string;
  readonly backends: readonly [
    { readonly memory: { readonly state: string; readonly bytes: number }; readonly tokens_per_second: number | null },
  ];
}
const list = async (): Promise<readonly Listed[]> =>
  JSON.parse((await service.command('models', 'list', '--json')).stdout) as readonly Listed[];

/** The one that has to be loaded before it can answer. */
async function unloadedModel(): Promise<Id> {
  const found = (await list()).find(({ backends: [{ memory }] }) => memory.state === 'unloaded');
  assert.ok(found !== undefined);
  return found.id as Id;
}

/** Processes that the service has started. */
function children(): ReadonlySet<number> {
  const found = new Set<number>();
  for (const task of readdirSync(`/proc/${service.pid}/task`)) {
    const text = readFileSync(`/proc/${service.pid}/task/${task}/children`, 'utf8');
    for (const pid of text.split(' ')) if (pid !== '') found.add(Number(pid));
  }
  return found;
}

/** The process that loads a model now: the one that was not there before. */
async function loading(known: ReadonlySet<number>): Promise<number> {
  let pid: number | undefined;
  await until(() => {
    pid = [...children()].find((each) => !known.has(each));
    // Before it runs its own program, the service waits for that and does nothing else.
    return pid !== undefined && readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('llama-child');
  }, patienceMs);
  return pid!;
}

describe('two models that do not fit together', { timeout: 900_000 }, () => {
  test('requests for both at once are all answered and billed to the token', async () => {
    const before = await ledger.balance();
    const asked = Array.from({ length: 10 }, (_, index) => {
      const requestId = newRequestId();
      const id = ids[index % 2]!;
      const stream = index % 4 < 2;
      return { id, stream, requestId, answer: ask(id, 20 + index, { stream, requestId }) };
    });
    let cost = 0n;
    for (const [index, { id, stream, requestId, answer }] of asked.entries()) {
      assert.equal(
        await said(await answer, stream),
        words(id)
          .slice(0, 20 + index)
          .join(''),
      );
      const row = await ledger.row(requestId, patienceMs);
      assert.deepEqual([row.ending, row.completionTokens], ['finished', 20 + index]);
      cost += row.costMicrocents;
    }
    assert.equal(before - (await ledger.balance()), cost);
    assert.ok(cost > 0n);
    assert.ok(service.log.some(({ event }) => event === 'llama_waits-for-memory'));
    assert.ok(service.log.some(({ event, reason }) => event === 'llama_unloaded' && reason === 'room'));
  });

  test('what is in memory is shown to the operator', async () => {
    for (const id of ids) assert.notEqual(await said(await ask(id, 1500), false), '');
    const listed = await list();
    assert.deepEqual(listed.map(({ backends: [{ memory }] }) => memory.state).toSorted(), ['loaded', 'unloaded']);
    for (const { backends } of listed) {
      const [{ memory, tokens_per_second: speed }] = backends;
      assert.ok(memory.bytes > 100e6 && memory.bytes < 390e6, `${memory.bytes}`);
      assert.ok(speed !== null && speed > 1, `${speed}`);
    }
    const table = (await service.command('models', 'list')).stdout;
    assert.match(table, /^first +4096 +window +[\d.]+ [kM]B +(?:un)?loaded +[\d.]+ MB +[\d.]+ +llama$/m, table);
    const metrics = await (await fetch(`${service.accountUrl}/metrics`)).text();
    assert.match(metrics, /^tokenhouse_backend_loaded\{model="first",backend="llama"\} [01]$/m);
    assert.match(metrics, /^tokenhouse_backend_memory_bytes\{model="second",backend="llama"\} \d+$/m);
  });

  test('a request that is cancelled while it waits is settled, and the next one is answered', async () => {
    const id = await unloadedModel();
    const busy = ids.find((each) => each !== id)!;
    const long = ask(busy, 1500, { stream: true });
    await (await long).body?.getReader().read();
    const leaving = new AbortController();
    const requestId = newRequestId();
    const left = ask(id, 5, { signal: leaving.signal, requestId });
    left.catch(() => {});
    await until(
      async () => (await list()).some(({ backends: [{ memory }] }) => memory.state === 'waiting'),
      patienceMs,
    );
    leaving.abort();
    await assert.rejects(left);
    const row = await ledger.row(requestId, patienceMs);
    assert.deepEqual([row.ending, row.completionTokens], ['client_left', 0]);
    assert.equal(await said(await ask(busy, 3), false), words(busy).slice(0, 3).join(''));
  });

  test('the process that loads a model is killed: what waits for it is answered by the next one', async () => {
    const id = await unloadedModel();
    const known = children();
    const answer = ask(id, 7);
    process.kill(await loading(known), 'SIGKILL');
    assert.equal(await said(await answer, false), words(id).slice(0, 7).join(''));
  });

  test('the service stops while a model loads: the request ends, and nothing is left open', async () => {
    const id = await unloadedModel();
    const known = children();
    const requestId = newRequestId();
    const answer = ask(id, 2000, { requestId });
    answer.catch(() => {});
    const pid = await loading(known);
    process.kill(pid, 'SIGSTOP');
    assert.equal(await service.stop(), 0);
    assert.equal(await ledger.openRequests(), 0);
    const row = await ledger.row(requestId, patienceMs);
    assert.ok(row.costMicrocents === 0n || row.completionTokens === 0, JSON.stringify(row.ending));
    await service.verify();
  });
});
