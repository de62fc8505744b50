import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { askRunningService } from '../../src/app/control/control-client.ts';
import { controlSocketPath } from '../../src/app/control/socket-path.ts';
import { assertEnvelope } from '../inference/http/envelope.ts';
import { exchange } from '../inference/http/raw.ts';
import type { RawAnswer } from '../inference/http/raw.ts';
import { InnerService, scriptedModel, until } from '../support/service.ts';

/** Models that are an account's own, and the labels of their requests (specification part 8, contracts decision 17). */
const everybodys = scriptedModel('- say: [ { text: "one two" } ]', { settings: '' });
const ownModel = (accountId: string): string => `${everybodys}
  - id: own
    dedicated_to: [ ${accountId} ]
    context_length: 64
    pricing: { input_cents_per_million: 100, output_cents_per_million: 1000 }
    backends: [ { engine: scripted, scripts: [ { say: [ { text: "three four five" } ] } ] } ]`;

const service = new InnerService({ config: everybodys });
let other = '';
before(async () => {
  await service.start();
  const socket = controlSocketPath(join(service.folder, 'data'));
  const account = await askRunningService(socket, { kind: 'create_account', name: 'other' });
  assert.ok(account !== undefined);
  const { stdout } = await service.command('keys', 'create', '--json', '--account', account.accountId);
  other = (JSON.parse(stdout) as { key: string }).key;
  service.configure({ config: ownModel(service.accountId) });
  await until(async () => (await listOf(service.key)).includes('own'), 60_000);
});
after(async () => {
  await service.verify();
  await service.dispose();
});

const ask = (path: string, key: string, model: string, tags: readonly string[] = []): Promise<RawAnswer> =>
  exchange(service.url, {
    method: 'POST',
    path,
    headers: [
      ['Authorization', `Bearer ${key}`],
      ['Content-Type', 'application/json'],
      ...tags.map((tag) => ['Service-Request-Tag', tag] as const),
    ],
    body: JSON.stringify({
      model,
      max_tokens: 9,
      ...(path.endsWith('responses')
        ? { input: 'hi', max_tokens: undefined }
        : path.endsWith('/completions') && !path.includes('chat')
          ? { prompt: 'hi' }
          : { messages: [{ role: 'user', content: 'hi' }] }),
    }),
  });
const paths = ['/v1/chat/completions', '/v1/completions', '/v1/messages', '/v1/responses'];
const listOf = async (key?: string): Promise<string[]> => {
  const headers = key === undefined ? [] : [['x-api-key', key] as const];
  const answer = await exchange(service.url, { path: '/v1/models', headers });
  return (answer.json()['data'] as { id: string }[]).map(({ id }) => id);
};
const linesOf = async (tag: string): Promise<readonly { readonly model: string; readonly tags: string[] }[]> => {
  const { stdout } = await service.command('usage', '--json', '--limit', '100', '--tag', tag);
  return (JSON.parse(stdout) as { requests: { model: string; tags: string[] }[] }).requests;
};

describe('a model that is dedicated to an account', () => {
  test('is on the list of its keys only', async () => {
    assert.deepEqual(await listOf(service.key), ['demo', 'own']);
    assert.deepEqual(await listOf(other), ['demo']);
    assert.deepEqual(await listOf(), ['demo']);
  });

  test('is for everybody else a model that there is not', async () => {
    for (const path of paths) {
      assert.equal((await ask(path, service.key, 'OWN')).status, 200, path);
      const answer = await ask(path, other, 'own');
      assert.equal(answer.status, 404, path);
      assert.ok(!answer.body.includes('use: own') && !answer.body.includes(', own'), answer.body);
      const nobodys = await ask(path, other, 'owm');
      assert.equal(
        answer.body.replaceAll(/req_\w+/g, ''),
        nobodys.body.replaceAll('owm', 'own').replaceAll(/req_\w+/g, ''),
      );
    }
  });
});

describe('Service-Request-Tag', () => {
  test('labels a request, and its usage is found under each label', async () => {
    for (const path of paths) {
      const answer = await ask(path, service.key, 'own', ['nightly, search_2', 'nightly', 'a-b']);
      assert.equal(answer.status, 200, answer.body);
    }
    for (const tag of ['nightly', 'search_2', 'a-b']) {
      const lines = await linesOf(tag);
      assert.deepEqual(
        lines.map(({ tags }) => tags),
        Array(4).fill(['nightly', 'search_2', 'a-b']),
        tag,
      );
    }
    // No part of a label is one, and `_` is a letter.
    for (const tag of ['night', 'searchx2', 'search', '%', '"', 'b']) assert.deepEqual(await linesOf(tag), [], tag);
  });

  test('adds usage up by label', async () => {
    assert.equal((await ask(paths[0]!, service.key, 'own', ['nightly', 'alone'])).status, 200);
    const { stdout } = await service.command('costs', '--json', '--by', 'tag');
    const costs = JSON.parse(stdout) as { tag: string; requests: number; cost_microcents: number }[];
    const [first, ...rest] = ['a-b', 'alone', 'nightly', 'search_2'].map((name) =>
      costs.find(({ tag }) => tag === name)!,
    );
    assert.deepEqual([first!.requests, ...rest.map(({ requests }) => requests)], [4, 1, 5, 4]);
    const byModel = JSON.parse((await service.command('costs', '--json')).stdout) as {
      model: string;
      requests: number;
    }[];
    assert.deepEqual(
      byModel.map(({ model }) => model),
      ['own'],
    );
    assert.equal(byModel[0]!.requests, 9);
    assert.equal(costs.find(({ tag }) => tag === 'alone')!.cost_microcents, 3_500);
    assert.match((await service.command('costs', '--by', 'tag')).stdout, /^alone +1 .* \$0\.000035$/m);
  });

  test('is refused when a label is invalid, or there are more than eight', async () => {
    const nine = Array.from({ length: 9 }, (_, index) => `t${index}`);
    for (const tags of [['Nightly'], ['a b'], [''], ['a,'], ['a,,b'], ['x'.repeat(33)], nine, [nine.join()]]) {
      for (const path of paths) {
        const answer = await ask(path, service.key, 'own', tags);
        assert.equal(answer.status, 400, `${path} ${tags.join()}`);
        if (!path.endsWith('messages')) assertEnvelope(answer, 'invalid_request_tag', { param: 'Service-Request-Tag' });
      }
    }
    assert.equal((await ask(paths[0]!, service.key, 'own', [nine.slice(1).join(', '), 't1'])).status, 200);
  });

  test("is ignored on models that are everybody's, whatever it says", async () => {
    const answer = await ask(paths[0]!, service.key, 'demo', ['NOT A TAG', 'plain']);
    assert.equal(answer.status, 200);
    assert.deepEqual(await linesOf('plain'), []);
  });
});
