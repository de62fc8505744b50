import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { assertEnvelope } from '../inference/http/envelope.ts';
import { Relay } from './relay.ts';
import { sendResponses } from './responses-relay.ts';

let relay: Relay;
let others: Relay['upstream'];

const zdr = [['Service-ZDR', 'required']] as const;

before(async () => {
  // Two servers that keep what they are sent: only the second may be asked under zero data retention.
  const keeping = await Relay.start((url) => model('keeping', url));
  others = keeping.upstream;
  relay = await Relay.start((url) =>
    [
      model('both', keeping.upstream.url, `${url}", zdr: true, name: "private`),
      model('keeping', keeping.upstream.url),
      model('private', `${url}", zdr: true, name: "private`),
    ].join(''),
  );
  await keeping.service.dispose();
});
after(async () => {
  await relay.end();
  await others.close();
});

function model(id: string, ...urls: readonly string[]): string {
  const backends = urls.map((url) => `{ engine: openai, flavor: vllm, url: "${url}" }`);
  return `
  - id: ${id}
    context_length: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ ${backends.join(', ')} ]`;
}

const reported = (): number => others.exchanges.splice(0).length;

test('§4.2.6 Service-ZDR: required routes the request only to zero-data-retention infrastructure', async () => {
  await relay.send({ model: 'both' });
  assert.equal(reported(), 1);
  assert.deepEqual(relay.asked(), []);
  for (let round = 0; round < 5; round++) await relay.sent({ model: 'both' }, zdr);
  assert.equal(reported(), 0);
});

test('§4.2.6 a prompt is not even counted by another server', async () => {
  // Too long to be taken without a count.
  const messages = [{ role: 'user', content: 'x'.repeat(6000) }];
  await relay.send({ model: 'both', messages });
  assert.ok(reported() > 1);
  await relay.sent({ model: 'both', messages }, zdr);
  assert.equal(reported(), 0);
});

test('§4.2.6 an answer of /v1/responses never says that it is stored: true is refused, absent is false', async () => {
  const ask = (more: object, headers: readonly (readonly [string, string])[] = zdr) =>
    sendResponses(relay.service, { model: 'private', input: 'hi', ...more }, { headers });
  for (const stream of [false, true]) {
    assertEnvelope(await ask({ store: true, stream }), 'unsupported_parameter', { param: 'store' });
    assert.deepEqual(relay.asked(), []);
    for (const store of [undefined, null, false]) {
      const answer = await ask({ store, stream });
      assert.equal(answer.status, 200, answer.body);
      assert.deepEqual(new Set(answer.body.match(/"store":\w+/g)), new Set(['"store":false']), answer.body);
    }
    relay.asked();
    for (const store of [undefined, true]) {
      const kept = await ask({ store, stream }, []);
      assert.deepEqual(new Set(kept.body.match(/"store":\w+/g)), new Set(['"store":true']), kept.body);
    }
    relay.asked();
  }
});

test('§4.2.6 fails closed: with its private server gone, the request goes nowhere', async () => {
  await relay.upstream.close();
  let code: unknown;
  // The first requests find out that nobody is there.
  for (let round = 0; round < 20 && code !== 'no_healthy_backends'; round++) {
    const answer = await relay.send({ model: 'both' }, zdr);
    assert.ok(answer.status >= 500, answer.body);
    code = (answer.json()['error'] as { readonly code: unknown }).code;
  }
  assert.equal(reported(), 0);
  assert.equal((await relay.send({ model: 'both' })).status, 200);
});

test('§4.2.6 any other header value returns 400 invalid_zdr_header', async () => {
  for (const value of ['Required', 'true', 'required,required', 'optional', '']) {
    const answer = await relay.send({ model: 'both' }, [['Service-ZDR', value]]);
    assertEnvelope(answer, 'invalid_zdr_header', { param: 'Service-ZDR' });
  }
});

test('§4.2.6 a model without ZDR support returns 400 model_zdr_not_supported', async () => {
  reported();
  assertEnvelope(await relay.send({ model: 'keeping' }, zdr), 'model_zdr_not_supported', { param: 'model' });
  assert.equal(reported(), 0);
});

test('§7.2 Service-Request-Tag is ignored on serverless keys', async () => {
  for (const value of ['NOT a tag!', 'a,b,c,d,e,f,g,h,i,j', 'x'.repeat(100)]) {
    const answer = await relay.send({ model: 'keeping' }, [['Service-Request-Tag', value]]);
    assert.equal(answer.status, 200, answer.body);
  }
});
