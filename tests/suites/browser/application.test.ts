/** An application in a browser that calls models by itself: its pages are of another origin than the service. */
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import type { TestContext } from 'node:test';

import { noFeatures, scriptedModel, TestService } from '../../support/service.ts';
import { openChromium } from './browser.ts';

/** Serves an empty page; resolves with its port. */
async function startApplication(t: TestContext): Promise<number> {
  const server = createServer((_, response) => {
    response.writeHead(200, { 'content-type': 'text/html' }).end('<!doctype html><title>Application</title>');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return (server.address() as AddressInfo).port;
}

interface Seen {
  readonly status?: number;
  readonly id?: string | null;
  readonly retryAfter?: string | null;
  readonly text?: string;
  /** The browser kept the answer from the page. */
  readonly refused?: string;
}

/** What the script of a page would do; sent to the browser as text. */
const asking = (url: string, key: string, body: object): string => `(async () => {
  try {
    const answer = await fetch(${JSON.stringify(`${url}/v1/chat/completions`)}, {
      method: 'POST',
      headers: { authorization: 'Bearer ${key}', 'content-type': 'application/json', 'x-stainless-lang': 'js' },
      body: ${JSON.stringify(JSON.stringify(body))},
    });
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    for (let read; !(read = await reader.read()).done; ) text += read.value;
    return {
      status: answer.status,
      id: answer.headers.get('x-request-id'),
      retryAfter: answer.headers.get('retry-after'),
      text,
    };
  } catch (error) {
    return { refused: error.message };
  }
})()`;

test('pages that are allowed ask, stream and read errors; the browser keeps every answer from others', async (t) => {
  const port = await startApplication(t);
  const [allowed, stranger, local] = ['app.example.org', 'evil.example', '127.0.0.1'].map(
    (host) => `http://${host}:${port}`,
  ) as [string, string, string];
  const service = new TestService({ config: '' });
  t.after(() => service.dispose());
  service.writeConfig(
    `server:\n  inference: { port: 0, allow_origins: ["${allowed}"] }\n  account: { port: 0, console: false }\n` +
      scriptedModel('- { say: [{ text: "one " }, { text: "two" }] }', { settings: noFeatures }),
  );
  await service.start();
  const browser = await openChromium(t, [
    '--host-resolver-rules=MAP *.example.org 127.0.0.1, MAP evil.example 127.0.0.1',
  ]);
  const page = await browser.newPage();
  const plain = { model: 'demo', messages: [{ role: 'user', content: 'hi' }] };
  const ask = async (key: string, body: object): Promise<Seen> =>
    (await page.evaluate(asking(service.url, key, body))) as Seen;

  for (const origin of [allowed, local]) {
    await page.goto(origin);
    const whole = await ask(service.key, plain);
    assert.equal(whole.status, 200, JSON.stringify(whole));
    assert.match(whole.id ?? '', /^req_/);
    assert.match(whole.text!, /one two/);
    const streamed = await ask(service.key, { ...plain, stream: true });
    assert.match(streamed.text!, /^data: \{.*data: \[DONE\]\s*$/s, JSON.stringify(streamed));
    const wrongKey = await ask('tkh_wrong', plain);
    assert.equal(wrongKey.status, 401);
    assert.match(wrongKey.text!, /"invalid_api_key"/);
    assert.equal((await ask(service.key, { ...plain, model: 'none' })).status, 404);
  }
  const before = (await service.usage()).requests.length;
  await page.goto(stranger);
  assert.equal((await ask(service.key, plain)).refused, 'Failed to fetch');
  assert.equal((await service.usage()).requests.length, before, 'the preflight has kept the request back');
});
