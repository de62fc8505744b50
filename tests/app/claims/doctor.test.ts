/** `tokenhouse doctor --claims` and `--write`, and what routing makes of `lacks`. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';

import { TestService, until } from '../../support/service.ts';
import { LyingServer, type Lie } from './lying-server.ts';

async function scene(
  t: TestContext,
  config: (urls: readonly string[]) => string,
  ...lies: readonly (readonly Lie[])[]
) {
  const servers = await Promise.all(lies.map((each) => LyingServer.start(...each)));
  const service = new TestService({ config: config(servers.map(({ url }) => url)) });
  t.after(async () => {
    await service.dispose();
    await Promise.all(servers.map(({ upstream }) => upstream.close()));
  });
  return { servers, service };
}

const backend = (name: string, url: string | undefined): string =>
  `      # ${name}\n      - { engine: openai, name: ${name}, flavor: vllm, url: "${url}" }`;
const configOf = ([one, two]: readonly string[], settings = ''): string => `models:
  - id: m
    context_length: 4096 # of the card
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
${settings}    backends:
${backend('honest', one)}
${backend('liar', two)}`;

const tool = { type: 'function', function: { name: 'get_weather', parameters: { type: 'object', properties: {} } } };
const chat = { model: 'm', messages: [{ role: 'user', content: 'hi' }] };

test('differences are told by backend, written into its entry, and requests that need it go elsewhere', async (t) => {
  const { servers, service } = await scene(t, configOf, [], ['tools', 'logprobs', 'abort']);
  const [honest, liar] = servers as [LyingServer, LyingServer];
  await service.start();
  const reported = await service.command('doctor', '--claims');
  assert.match(reported.stdout, /^ok +claims +m · honest · usage, window, abort, tools, .*top_k$/m);
  assert.match(
    reported.stdout,
    /^warning +claims +m · liar · logprobs: the card says that it reports the probabilities/m,
  );
  assert.match(
    reported.stdout,
    /^warning +claims +m · liar · abort: .*\n +why +it goes on for more than 5 seconds\n +repair +see the documentation/m,
  );
  const file = join(service.folder, 'tokenhouse.yaml');
  assert.doesNotMatch(readFileSync(file, 'utf8'), /lacks/);
  const written = await service.command('doctor', '--write');
  assert.match(written.stdout, /^ok +configuration +.*corrected for m · in force$/m);
  const text = readFileSync(file, 'utf8');
  assert.match(text, /name: liar, .*lacks: \[ tools, tool_streaming, logprobs \]/);
  assert.match(text, /# of the card[^]*# honest[^]*# liar/, 'comments stay');
  assert.match(text, /name: honest, flavor: vllm, url: "[^"]*" }/);
  for (const server of servers) server.bodies.length = 0;
  for (let count = 0; count < 6; count++) {
    const answer = await service.chat({ ...chat, tools: [tool], tool_choice: 'required' });
    assert.equal(answer.status, 200, await answer.text());
    assert.equal((await service.chat({ ...chat, logprobs: true })).status, 200);
  }
  // Several at once: one after the other they may all go to the one that was measured to be faster.
  const others = await Promise.all(Array.from({ length: 8 }, () => service.chat(chat)));
  assert.deepEqual(
    others.map(({ status }) => status),
    Array.from({ length: 8 }, () => 200),
  );
  assert.deepEqual(
    liar.bodies.filter((body) => body.tools !== undefined || body.logprobs !== undefined),
    [],
  );
  assert.ok(liar.bodies.length > 0 && honest.bodies.length >= 12);
  // When it is repaired, the file says so again.
  liar.lies.clear();
  const again = await service.command('doctor', '--write');
  assert.match(again.stdout, /liar · tools: the file says that it lacks it/);
  assert.doesNotMatch(readFileSync(file, 'utf8'), /lacks/);
});

test('what no backend keeps leaves the card, and a shorter window shortens it', async (t) => {
  const { service } = await scene(
    t,
    (urls) => configOf(urls, '    capabilities: { tools: true }\n'),
    ['tools', 'n', 'window'],
    ['tools', 'n'],
  );
  await service.start();
  const { stdout } = await service.command('doctor', '--write');
  assert.match(stdout, /corrected for m · in force/);
  const text = readFileSync(join(service.folder, 'tokenhouse.yaml'), 'utf8');
  assert.match(text, /context_length: 2048 # of the card/);
  assert.match(text, /capabilities: { tools: false }/);
  assert.equal((await service.chat({ ...chat, tools: [tool] })).status, 400);
  assert.equal((await service.chat({ ...chat, n: 2 })).status, 400);
  assert.equal((await service.chat(chat)).status, 200);
});

test('with check_claims a service finds it out by itself, and tells its log', async (t) => {
  const { servers, service } = await scene(
    t,
    (urls) => configOf(urls).replaceAll('flavor:', 'check_claims: true, flavor:'),
    [],
    ['tools', 'usage_missing'],
  );
  const liar = servers[1]!;
  await service.start();
  const checked = () => service.log.filter(({ event }) => event === 'claims_checked');
  await until(() => checked().length === 2, 60_000);
  const [found] = checked().filter(({ backend: name }) => name === 'liar');
  assert.match(String(found?.['broken']), /^usage: it reports no usage.*; tools: .*; tool_streaming: /);
  await until(() => service.log.some(({ event }) => event === 'backends_changed'));
  const before = liar.bodies.filter((body) => body.tools !== undefined).length;
  for (let count = 0; count < 6; count++) {
    const answer = await service.chat({ ...chat, tools: [tool], tool_choice: 'required' });
    assert.equal(answer.status, 200, await answer.text());
  }
  assert.equal(liar.bodies.filter((body) => body.tools !== undefined).length, before);
});
