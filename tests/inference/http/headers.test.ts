import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { InnerService, scriptedModel } from '../../support/service.ts';
import { askChat, chatRequest, plainBody } from './chat.ts';
import { assertEnvelope } from './envelope.ts';
import { exchange } from './raw.ts';
import type { RawAnswer } from './raw.ts';

/** What the headers of a request decide beside the key, and what stands in those of an answer. */
const service = new InnerService({ config: scriptedModel('- say: [ { text: "hello" } ]') });
before(() => service.start());
after(() => service.dispose());

type Header = readonly [string, string];

/** A request with exactly this content type, or none. */
const withType = (type: string | undefined): Promise<RawAnswer> =>
  exchange(service.url, {
    ...chatRequest(service),
    headers: [
      ['Authorization', `Bearer ${service.key}`],
      ...(type === undefined ? [] : [['Content-Type', type] as const]),
    ],
  });

describe('the content type (contracts decision 24)', () => {
  for (const type of [
    'application/json',
    'application/json; charset=utf-8',
    'APPLICATION/JSON;charset="utf-8"; x=y',
    'text/plain',
    'application/x-www-form-urlencoded',
    'nonsense',
    '',
    undefined,
  ]) {
    test(`${JSON.stringify(type)} is taken when the body is JSON`, async () => {
      assert.equal((await withType(type)).status, 200);
    });
  }

  for (const type of ['multipart/form-data; boundary=x', 'Multipart/Mixed', 'multipart/']) {
    test(`${type} is refused`, async () => {
      assertEnvelope(await withType(type), 'http_415');
    });
  }

  test('a compressed body is refused, an uncompressed one that says so is taken', async () => {
    for (const encoding of ['gzip', 'br', 'GZIP', 'identity, gzip', '']) {
      assertEnvelope(await askChat(service, plainBody, [['Content-Encoding', encoding]]), 'http_415');
    }
    assert.equal((await askChat(service, plainBody, [['Content-Encoding', 'identity']])).status, 200);
  });
});

describe('Service-ZDR (specification §4.2.6)', () => {
  const zdr = (...values: readonly string[]): readonly Header[] => values.map((value) => ['Service-ZDR', value]);

  test('required is understood, and this model does not offer it', async () => {
    assertEnvelope(await askChat(service, plainBody, zdr('required')), 'model_zdr_not_supported', { param: 'model' });
    // HTTP strips the blanks around a value.
    assertEnvelope(await askChat(service, plainBody, zdr('  required\t')), 'model_zdr_not_supported', {
      param: 'model',
    });
    assertEnvelope(await askChat(service, plainBody, [['service-zdr', 'required']]), 'model_zdr_not_supported', {
      param: 'model',
    });
  });

  for (const values of [
    ['Required'],
    ['REQUIRED'],
    [''],
    ['   '],
    ['true'],
    ['requiredd'],
    ['required;'],
    ['required, required'],
    ['required', 'required'],
    ['required', 'no'],
    ['"required"'],
  ]) {
    test(`${JSON.stringify(values)} is refused`, async () => {
      assertEnvelope(await askChat(service, plainBody, zdr(...values)), 'invalid_zdr_header', { param: 'Service-ZDR' });
    });
  }
});

describe('the headers of an answer (contracts §1.0)', () => {
  test('of a whole answer', async () => {
    const { headers } = await askChat(service);
    assert.equal(headers['content-type'], 'application/json');
    assert.equal(headers['cache-control'], 'no-cache');
    assert.ok(Number(headers['content-length']) > 0);
  });

  test('of a stream', async () => {
    const { headers } = await askChat(service, { ...plainBody, stream: true });
    assert.equal(headers['content-type'], 'text/event-stream; charset=utf-8');
    assert.equal(headers['cache-control'], 'no-cache');
    assert.equal(headers['x-accel-buffering'], 'no');
    assert.equal(headers['content-length'], undefined);
  });

  test('Service-Request-Tag is ignored on serverless keys', async () => {
    assert.equal((await askChat(service, plainBody, [['Service-Request-Tag', 'NOT A TAG']])).status, 200);
  });

  test('query strings are ignored', async () => {
    const request = { ...chatRequest(service), path: '/v1/chat/completions?beta=true&x=/v1/models' };
    assert.equal((await exchange(service.url, request)).status, 200);
    assert.equal((await exchange(service.url, { path: '/v1/models?limit=1000' })).status, 200);
    assert.equal((await exchange(service.url, { path: '/healthz?' })).status, 200);
  });
});
