import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { TestService, scriptedModel, until } from '../support/service.ts';
import { Terminal } from '../support/terminal.ts';
import { mainFile } from '../support/built.ts';

/** What a start says (ux §6.3): everything with the key the first time, five lines on a terminal later. */
const service = new TestService({ config: scriptedModel('- say: [ { text: "hello" } ]'), console: true });
before(async () => {
  await service.start();
  // It listens before it has said everything.
  const hasStarted = (): boolean => service.log.some(({ event }) => event === 'started');
  await until(() => Promise.resolve(hasStarted() && service.output.includes('/welcome#')), 60_000);
});
after(() => service.dispose());

/** By whoever has run `npm run build console` or a browser's tests in this clone. */
const isConsoleBuilt = existsSync(join(dirname(mainFile), 'console'));

/** Without the log: JSON, or on a terminal text that begins with the time. */
const talk = (text: string): readonly string[] =>
  text.split('\n').filter((line) => line !== '' && !/^(\{|\d\d:\d\d:\d\d )/.test(line));

describe('the first start, without a terminal', () => {
  test('says where everything is, the mode, and the commands that come next', () => {
    const lines = talk(service.output);
    const expected = [
      /^Tokenhouse \d+\.\d+\.\d+ · node \d+.* · one process, SQLite · no telemetry$/,
      /^config {3}\.\/tokenhouse\.yaml$/,
      /^data {5}\.\/data · created · [\d.]+ [GT]B free$/,
      /^model {4}demo · scripted · ready$/,
      /^ready in [\d.]+ s$/,
      isConsoleBuilt ? /^ {2}Console http:\/\/localhost:\d+$/ : /^ {2}Console none in this copy/,
      /^ {2}API {5}http:\/\/localhost:\d+\/v1$/,
      /^ {2}Errors {2}http:\/\/localhost:\d+\/docs\/errors$/,
      /^note {5}reachable from this computer only; to publish set server\.inference\.host and public_url$/,
      /^The first account was created: acct_/,
    ];
    for (const [index, pattern] of expected.entries()) assert.match(lines[index] ?? '', pattern);
    assert.match(service.output, /^ {2}tkh_[0-9A-Za-z]{38}$/m);
    assert.match(service.output, /npx tokenhouse chat +\(on this computer it needs no key\)/);
    assert.match(service.output, /^ {2}http:\/\/localhost:\d+\/welcome#[\w-]{43}$/m);
  });

  test('logs the same facts as one JSON line', () => {
    const started = service.log.find(({ event }) => event === 'started');
    assert.ok(started);
    assert.equal(started['inference_url'], service.url);
    assert.equal(started['account_url'], service.accountUrl);
    assert.match(String(started['data']), /\/data$/);
    assert.ok(Number(started['migrations']) > 0);
    assert.ok(!JSON.stringify(started).includes('tkh_'));
    assert.ok(!service.log.some((line) => JSON.stringify(line).includes('welcome#')));
  });
});

test('a later start without a terminal says the facts again, and no key', async () => {
  const keys = service.output.split('tkh_').length;
  await service.stop();
  await service.start();
  assert.match(service.output, /^data {5}\.\/data · [\d.]+ [kMG]B · [\d.]+ [GT]B free$/m);
  assert.equal(service.output.split('tkh_').length, keys, 'a key was printed again');
  await service.stop();
});

test('a later start on a terminal has five lines, and the link for the owner as long as there is none', async () => {
  const terminal = new Terminal([process.execPath, mainFile, 'serve'], { folder: service.folder });
  await terminal.shows(/API/);
  await terminal.shows(/\n[^\n]*Owner[^\n]*\n/);
  const lines = talk(terminal.screen);
  const expected = [
    /^Tokenhouse \d/,
    /^data {5}\.\/data · .* free · config \.\/tokenhouse\.yaml$/,
    /^model {4}demo · scripted · ready$/,
    /^ready in [\d.]+ s · reachable from this computer only$/,
    isConsoleBuilt
      ? /^ {2}Console http:\S+ {8}API {5}http:\S+\/v1$/
      : /^ {2}Console none in this copy.* {8}API {5}http:\S+\/v1$/,
    /^ {2}Owner {3}http:\S+\/welcome#\S+ {8}\(one use, 30 min\)$/,
  ];
  assert.equal(lines.length, expected.length, terminal.screen);
  for (const [index, pattern] of expected.entries()) assert.match(lines[index] ?? '', pattern);
  terminal.type('\u0003');
  await terminal.shows(/stopping: new requests are refused/);
  assert.equal(await terminal.ended(), 0);
});
