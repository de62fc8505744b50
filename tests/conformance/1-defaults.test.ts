import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { exchange } from '../inference/http/raw.ts';
import { InnerService, until } from '../support/service.ts';
import { writeTinyGguf } from '../support/tiny-gguf.ts';
import { Relay } from './relay.ts';
import { sha256Of } from '../support/folder.ts';

/** Part 1: models "use their own defaults" where a request says nothing, and where what it says is dropped. */
const system = 'You are a helpful assistant.';
const defaults = { temperature: 0.2, top_p: 0.9, top_k: 40, min_p: 0.05, repetition_penalty: 1.1 };
const written = `defaults: { system: "${system}", temperature: 0.2, top_p: 0.9, top_k: 40, min_p: 0.05, repetition_penalty: 1.1 }`;
const price = 'pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }';

type Body = Readonly<Record<string, unknown>>;
const fields = [...Object.keys(defaults), 'presence_penalty', 'frequency_penalty'];
const samplingOf = (body: Body): Body =>
  Object.fromEntries(Object.entries(body).filter(([name]) => fields.includes(name)));
const rolesOf = (body: Body): readonly (readonly [string, unknown])[] =>
  (body['messages'] as readonly { readonly role: string; readonly content: unknown }[]).map(({ role, content }) => [
    role,
    content,
  ]);

describe('a model behind a server', () => {
  let relay: Relay;
  before(async () => {
    relay = await Relay.start((url) =>
      (['honor', 'ignore', 'fixed'] as const)
        .map(
          (kind) => `
  - id: ${kind}
    context_length: 8192
    sampling: ${kind}
    ${price}
    ${written}
    backends: [ { engine: openai, flavor: vllm, url: "${url}" } ]`,
        )
        .concat(
          `
  - id: none
    context_length: 8192
    ${price}
    backends: [ { engine: openai, flavor: vllm, url: "${url}" } ]`,
        )
        .join(''),
    );
  });
  after(() => relay.end());

  /** What the model was sent for a request of a family. */
  const sentBy = async (path: string, body: Body): Promise<Body> => {
    relay.asked();
    const answer = await exchange(relay.service.url, {
      method: 'POST',
      path,
      headers: [
        ['Authorization', `Bearer ${relay.service.key}`],
        ['Content-Type', 'application/json'],
      ],
      body: JSON.stringify(body),
    });
    assert.equal(answer.status, 200, answer.body);
    return relay.asked()[0]!;
  };

  test('is sent its defaults where a request says nothing', async () => {
    for (const model of ['honor', 'ignore', 'fixed'])
      assert.deepEqual(samplingOf(await relay.sent({ model })), defaults, model);
    assert.deepEqual(samplingOf(await relay.sent({ model: 'none' })), {});
  });

  test('is sent what the request says, field by field, a zero included', async () => {
    const asked = { temperature: 0, top_k: 7 };
    assert.deepEqual(samplingOf(await relay.sent({ model: 'honor', ...asked })), { ...defaults, ...asked });
    assert.deepEqual(samplingOf(await relay.sent({ model: 'honor', temperature: null })), defaults);
  });

  test('is sent its defaults in place of the fields that it ignores', async () => {
    const asked = { temperature: 1.5, top_p: 0.1, presence_penalty: 1, top_k: 7 };
    for (const model of ['ignore', 'fixed'])
      assert.deepEqual(samplingOf(await relay.sent({ model, ...asked })), { ...defaults, top_k: 7 }, model);
  });

  const families = [
    ['/v1/chat/completions', { messages: [{ role: 'user', content: 'Hi' }] }],
    ['/v1/messages', { messages: [{ role: 'user', content: 'Hi' }], max_tokens: 5 }],
    ['/v1/responses', { input: 'Hi' }],
  ] as const;
  for (const [path, body] of families) {
    test(`${path}: a conversation without a system text gets the model's, and the defaults`, async () => {
      const sent = await sentBy(path, { model: 'honor', ...body });
      assert.deepEqual(samplingOf(sent), defaults);
      assert.deepEqual(rolesOf(sent), [
        ['system', system],
        ['user', 'Hi'],
      ]);
      assert.deepEqual(rolesOf(await sentBy(path, { model: 'none', ...body })), [['user', 'Hi']]);
    });
  }

  const own = [
    [
      '/v1/chat/completions',
      { messages: [{ role: 'developer', content: 'Mine.' }, families[0][1].messages[0]] },
      'Mine.',
    ],
    ['/v1/chat/completions', { messages: [{ role: 'system', content: '' }, families[0][1].messages[0]] }, ''],
    ['/v1/messages', { ...families[1][1], system: 'Mine.' }, 'Mine.'],
    ['/v1/messages', { ...families[1][1], system: '' }, undefined],
    ['/v1/messages', { ...families[1][1], system: [] }, undefined],
    ['/v1/responses', { input: 'Hi', instructions: 'Mine.' }, 'Mine.'],
    ['/v1/responses', { input: 'Hi', instructions: '' }, undefined],
  ] as const;
  for (const [path, body, text] of own) {
    test(`${path}: the client's own system text wins, ${JSON.stringify(body)}`, async () => {
      const expected = [...(text === undefined ? [] : [['system', text]]), ['user', 'Hi']];
      assert.deepEqual(rolesOf(await sentBy(path, { model: 'honor', ...body })), expected);
    });
  }

  test("a system message later in the conversation is the client's too", async () => {
    const user = { role: 'user', content: 'Hi' };
    const later = { model: 'honor', messages: [user, { role: 'system', content: 'Now in French.' }] };
    assert.deepEqual(rolesOf(await sentBy('/v1/chat/completions', later)), [
      ['user', 'Hi'],
      ['system', 'Now in French.'],
    ]);
  });

  test('shows its defaults on the card', async () => {
    const cards = (await exchange(relay.service.url, { path: '/v1/models' })).json()['data'] as readonly {
      readonly service: { readonly defaults?: Body };
    }[];
    assert.deepEqual(
      cards.map(({ service }) => service.defaults),
      [...Array.from({ length: 3 }, () => ({ system, ...defaults })), undefined],
    );
  });
});

describe('an embedded model', () => {
  const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-defaults-'));
  const file = join(folder, 'tiny.gguf');
  writeTinyGguf(file, {
    script: [['assistant\n', 'Hello', ' there', '<|im_end|>']],
    sampling: { temp: 0.7, top_k: 20, penalty_repeat: 1.05, top_p: 7 },
  });
  writeFileSync(
    join(folder, 'generation_config.json'),
    JSON.stringify({ temperature: 0.1, min_p: 0.02, top_p: 0.8, max_length: 20 }),
  );
  const sha256 = sha256Of(file);
  const model = (id: string, more = '') => `
  - id: ${id}
    context_length: 512
    ${price}
    ${more}
    backends: [ { engine: llama, sources: [ "${file}" ], sha256: ${sha256}, slots: 1, threads: 1 } ]`;
  const service = new InnerService({
    config: `models:${model('plain')}${model('configured', `defaults: { system: "${system}", temperature: 0.3 }`)}`,
  });
  before(() => service.start());
  after(async () => {
    await service.verify();
    await service.dispose();
    rmSync(folder, { recursive: true, force: true });
  });

  const cards = async () =>
    (await exchange(service.url, { path: '/v1/models' })).json()['data'] as readonly {
      readonly service: { readonly defaults?: Body };
    }[];
  const chat = async (body: Body) => {
    const answer = await exchange(service.url, {
      method: 'POST',
      path: '/v1/chat/completions',
      headers: [
        ['Authorization', `Bearer ${service.key}`],
        ['Content-Type', 'application/json'],
      ],
      body: JSON.stringify(body),
    });
    assert.equal(answer.status, 200, answer.body);
    return answer.json() as unknown as { readonly usage: { readonly prompt_tokens: number } };
  };

  test('has those of its file, then those beside it, and before both those of the configuration', async () => {
    // The file states a top_p that no request could use, so the one beside it counts.
    const inFile = { temperature: 0.7, top_p: 0.8, top_k: 20, min_p: 0.02, repetition_penalty: 1.05 };
    await until(async () => (await cards())[0]!.service.defaults !== undefined);
    assert.deepEqual(
      (await cards()).map(({ service: { defaults: shown } }) => shown),
      [inFile, { system, ...inFile, temperature: 0.3 }],
    );
  });

  test('counts the tokens of the text that is added, like those of a text that a client sends', async () => {
    const messages = [{ role: 'user', content: 'Hi' }];
    const added = await chat({ model: 'configured', messages });
    const sent = await chat({ model: 'plain', messages: [{ role: 'system', content: system }, ...messages] });
    const without = await chat({ model: 'plain', messages });
    assert.equal(added.usage.prompt_tokens, sent.usage.prompt_tokens);
    assert.ok(added.usage.prompt_tokens > without.usage.prompt_tokens);
  });
});
