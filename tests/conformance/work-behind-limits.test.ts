/**
 * What a request costs before it is taken (docs/architecture.md): a key that is over its limit, or cannot pay, makes nobody work.
 * Each kind of work that a family can ask for, whole and streamed.
 */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { askRunningService } from '../../src/app/control/control-client.ts';
import { controlSocketPath } from '../../src/app/control/socket-path.ts';
import { exchange } from '../inference/http/raw.ts';
import type { RawAnswer } from '../inference/http/raw.ts';
import { dataUri } from '../support/image-files.ts';
import { pdfOf } from '../support/pdf-files.ts';
import { InnerService } from '../support/service.ts';

type Kind = 'form' | 'file' | 'pdf' | 'fetch' | 'count';
type Body = Readonly<Record<string, unknown>>;

const model = (id: string, capabilities: string): string => `
  - id: ${id}
    context_length: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    capabilities: { vision: true, ${capabilities} }
    backends: [ { engine: scripted, scripts: [ { say: [ { text: yes } ] } ] } ]`;
const service = new InnerService({
  config: `models:${model('demo', '')}${model('embeds', 'embeddings: { supported: true }')}${model('ranks', 'rerank: { supported: true }')}`,
});
/** One request a minute. */
let limitedKey = '';
/** Of an account without credit. */
let poorKey = '';
before(async () => {
  await service.start();
  const keyOf = async (...args: string[]) => (await service.command('keys', 'create', ...args)).stdout.trim();
  limitedKey = await keyOf('--requests-per-minute', '1');
  const socket = controlSocketPath(join(service.folder, 'data'));
  const account = await askRunningService(socket, { kind: 'create_account', name: 'poor' });
  assert.ok(account !== undefined);
  poorKey = await keyOf('--account', account.accountId, '--user', 'eve');
});
after(() => service.dispose());

const schema = { type: 'object', properties: { a: { type: 'string', pattern: '^[a-z]+$' } }, required: ['a'] };
const text = dataUri('text/plain', Buffer.from('hello'));
const pdf = dataUri('application/pdf', pdfOf(['Hello.']));
// No name below .invalid is anybody's (RFC 6761).
const address = 'https://nobody.invalid/x';
/** Its bytes alone do not show that it fits. */
const long = 'word '.repeat(3_000);

const chat = (content: unknown, more: Body = {}): Body => ({
  model: 'demo',
  max_tokens: 8,
  messages: [{ role: 'user', content }],
  ...more,
});
const responses = (content: unknown, more: Body = {}): Body => ({
  model: 'demo',
  max_output_tokens: 16,
  input: [{ role: 'user', content }],
  ...more,
});
const base64 = (uri: string): string => uri.slice(uri.indexOf(',') + 1);
const document = (source: unknown): unknown => [{ type: 'document', source }];
const pdfDocument = document({ type: 'base64', media_type: 'application/pdf', data: base64(pdf) });

interface Family {
  readonly path: string;
  readonly streams: boolean;
  readonly work: Readonly<Partial<Record<Kind, Body>>>;
}

const families: readonly Family[] = [
  {
    path: '/v1/chat/completions',
    streams: true,
    work: {
      form: chat('hi', { response_format: { type: 'json_schema', json_schema: { name: 'a', schema } } }),
      file: chat([{ type: 'file', file: { file_data: text } }]),
      pdf: chat([{ type: 'file', file: { file_data: pdf } }]),
      fetch: chat([{ type: 'image_url', image_url: { url: address } }]),
      count: chat(long),
    },
  },
  {
    path: '/v1/completions',
    streams: true,
    work: {
      form: {
        model: 'demo',
        prompt: 'hi',
        response_format: { type: 'json_schema', json_schema: { name: 'a', schema } },
      },
      count: { model: 'demo', prompt: long },
    },
  },
  {
    path: '/v1/messages',
    streams: true,
    work: {
      form: chat('hi', {
        output_config: { format: { type: 'json_schema', schema: { ...schema, additionalProperties: false } } },
      }),
      file: chat(document({ type: 'base64', media_type: 'text/plain', data: base64(text) })),
      pdf: chat(pdfDocument),
      fetch: chat([{ type: 'image', source: { type: 'url', url: address } }]),
      count: chat(long),
    },
  },
  {
    path: '/v1/responses',
    streams: true,
    work: {
      form: responses('hi', { text: { format: { type: 'json_schema', name: 'a', schema } } }),
      file: responses([{ type: 'input_file', filename: 'a', file_data: text }]),
      pdf: responses([{ type: 'input_file', filename: 'a', file_data: pdf }]),
      fetch: responses([{ type: 'input_file', file_url: address }]),
      count: responses(long),
    },
  },
  { path: '/v1/embeddings', streams: false, work: { count: { model: 'embeds', input: long } } },
  { path: '/v1/rerank', streams: false, work: { count: { model: 'ranks', query: 'a', documents: [long] } } },
  {
    path: '/v1/messages/count_tokens',
    streams: false,
    work: { pdf: chat(pdfDocument, { max_tokens: undefined }), count: chat('hi', { max_tokens: undefined }) },
  },
  {
    path: '/v1/responses/input_tokens',
    streams: false,
    work: {
      pdf: responses([{ type: 'input_file', filename: 'a', file_data: pdf }], { max_output_tokens: undefined }),
      count: responses('hi', { max_output_tokens: undefined }),
    },
  },
];
const isCounting = ({ path }: Family): boolean => /tokens$/.test(path);

const ask = (key: string, path: string, body: Body): Promise<RawAnswer> =>
  exchange(service.url, {
    method: 'POST',
    path,
    headers: [['Authorization', `Bearer ${key}`]],
    body: JSON.stringify(body),
  });

/** How much work of each kind has begun. */
async function begun(): Promise<Readonly<Record<Kind, number>>> {
  const page = await (await fetch(`${service.accountUrl}/metrics`)).text();
  const kinds = [...page.matchAll(/^tokenhouse_work_total\{kind="(\w+)"\} (\d+)$/gm)];
  assert.equal(kinds.length, 5, page);
  return Object.fromEntries(kinds.map(([, kind, count]) => [kind, Number(count)])) as Record<Kind, number>;
}

/** Uses up the minute of the key, and returns by when another one may have begun. */
async function exhaust(): Promise<number> {
  for (;;) {
    const { status, headers } = await ask(limitedKey, '/v1/chat/completions', chat('hi'));
    if (status === 429) return performance.now() + (Number(headers['ratelimit-reset']) - 1) * 1_000;
    assert.equal(status, 200);
  }
}

const codeOf = (answer: RawAnswer): unknown => (answer.json()['error'] as { code?: unknown } | undefined)?.code;

for (const family of families) {
  describe(family.path, () => {
    for (const [kind, whole] of Object.entries(family.work) as readonly (readonly [Kind, Body])[]) {
      for (const stream of family.streams ? [false, true] : [undefined]) {
        const body = { ...whole, ...(stream === undefined ? {} : { stream }) };
        const name = `${kind}${stream === undefined ? '' : stream ? ', streamed' : ', whole'}`;

        test(`${name}: a key over its limit gets 429, and nothing is done for it`, async () => {
          for (let tries = 0; ; tries++) {
            assert.ok(tries < 20, 'the machine is too slow for a minute');
            const untilMs = await exhaust();
            const before = await begun();
            const answer = await ask(limitedKey, family.path, body);
            if (performance.now() > untilMs) {
              // In the last second of a minute it is not known whose turn it is.
              await sleep(100);
              continue;
            }
            assert.deepEqual([answer.status, codeOf(answer)], [429, 'rate_limit_exceeded'], answer.body);
            assert.deepEqual(await begun(), before);
            break;
          }
        });

        test(`${name}: an account without credit gets 402, and nothing is done for it`, async () => {
          const before = await begun();
          const answer = await ask(poorKey, family.path, body);
          if (isCounting(family) && kind === 'count') {
            // Free of charge, and in the account's own turn.
            assert.equal(answer.status, 200, answer.body);
            return;
          }
          assert.deepEqual([answer.status, codeOf(answer)], [402, 'insufficient_credits'], answer.body);
          assert.deepEqual(await begun(), before);
        });

        test(`${name}: for others the same is work, of this kind`, async () => {
          const before = await begun();
          const answer = await ask(service.key, family.path, body);
          const after = await begun();
          // A form is known from the time before.
          const isKnown = kind === 'form' && before.form > 0;
          assert.ok(isKnown || after[kind] > before[kind], `${JSON.stringify([before, after])} ${answer.body}`);
        });
      }
    }
  });
}

test('a request that its preparation refuses costs nothing, leaves no row, and gives back what it had', async () => {
  const before = await service.usage();
  const damaged = dataUri('application/pdf', Buffer.from('%PDF-1.7\nnothing of a PDF follows here'));
  const broken = { type: 'json_schema', json_schema: { name: 'a', schema: { type: 'string', pattern: '(' } } };
  for (const stream of [false, true])
    for (const body of [
      chat([{ type: 'file', file: { file_data: damaged } }], { stream }),
      chat('hi', { response_format: broken, stream }),
      chat('word '.repeat(6_000), { stream }),
      chat([{ type: 'image_url', image_url: { url: address } }], { stream }),
    ]) {
      const answer = await ask(service.key, '/v1/chat/completions', body);
      assert.equal(answer.status, 400, answer.body);
    }
  const after = await service.usage();
  assert.deepEqual(
    [after.balanceMicrocents, after.requests.length],
    [before.balanceMicrocents, before.requests.length],
  );
  const page = await (await fetch(`${service.accountUrl}/metrics`)).text();
  for (const gauge of ['tokenhouse_holds_open', 'tokenhouse_held_microcents', 'tokenhouse_body_bytes'])
    assert.match(page, new RegExp(`^${gauge} 0$`, 'm'));
});
