/** An exception or a rejection that reaches nobody ends the process in order (reliability S10). */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import type { TestContext } from 'node:test';

import { nameAndPlace } from '../../../src/cli/crash.ts';
import { TestLedger } from '../../support/test-ledger.ts';
import { RawClient, chatBytes, newRequestId } from '../../support/raw-client.ts';
import { TestService, scriptedModel, until } from '../../support/service.ts';
import { built } from '../../support/built.ts';

const waitMs = 60_000;
/** An end and ten seconds for what runs; a test that runs beside many others takes as long as it takes. */
const options = { timeout: 300_000 };

const scripts = `- when: { last_text: for ever }
  say: [ { text: [ "word " ] } ]
  repeat: 100000
  pace_ms: 20
- when: { last_text: soon done }
  say: [ { text: [ "word " ] } ]
  repeat: 40
  pace_ms: 20
- say: [ { text: "hello" } ]
`;

async function faulty(t: TestContext): Promise<{ readonly service: TestService; fault(kind: string): void }> {
  const service = new TestService({
    config: scriptedModel(scripts, { contextLength: 1_000_000 }),
    entry: built('tests/suites/faults/faulty-entry.ts'),
  });
  t.after(() => service.dispose());
  await service.start();
  return {
    service,
    fault: (kind) => {
      writeFileSync(join(service.folder, 'fault'), kind);
      process.kill(service.pid, 'SIGUSR2');
    },
  };
}

async function send(service: TestService, text: string, stream: boolean): Promise<{ id: string; client: RawClient }> {
  const id = newRequestId();
  const client = await RawClient.connect(service.url);
  client.send(chatBytes(service.key, id, { model: 'demo', stream, messages: [{ role: 'user', content: text }] }));
  return { id, client };
}

for (const [kind, error] of [
  ['exception', 'TypeError'],
  ['rejection', 'RangeError'],
  ['string', 'string'],
] as const) {
  test(
    `${kind}: what runs ends with its error, the money is right, and the next start is ready`,
    options,
    async (t) => {
      const { service, fault } = await faulty(t);
      const ledger = new TestLedger(service);
      const streamed = await send(service, 'for ever', true);
      const whole = await send(service, 'for ever', false);
      const finishing = await send(service, 'soon done', true);
      await until(() => streamed.client.events.length > 2 && finishing.client.events.length > 2, waitMs);
      await until(async () => (await ledger.openRequests()) === 3, waitMs);
      const exit = service.exited();
      fault(kind);

      await Promise.all([streamed, whole, finishing].map(({ client }) => client.closed));
      assert.deepEqual(await exit, { code: 70, signal: null });
      assert.match(finishing.client.events.at(-1) ?? '', /\[DONE\]/, 'what ends in time ends well');
      assert.doesNotMatch(finishing.client.text, /"error"/);
      const last = streamed.client.events.slice(-2);
      assert.match(last[0] ?? '', /"error":.*"code":"no_healthy_backends"/, 'a stream ends with its error');
      assert.equal(last[1], '[DONE]');
      assert.equal(whole.client.status, 503);
      assert.match(whole.client.text, /"code":"no_healthy_backends"/);

      assert.deepEqual(
        await Promise.all([streamed, whole, finishing].map(async ({ id }) => (await ledger.row(id)).ending)),
        ['drained', 'drained', 'finished'],
      );
      assert.equal((await ledger.row(streamed.id)).costMicrocents, 0n, 'our fault costs nothing');
      await ledger.verify({ owned: false });

      const lines = service.log.filter(({ event }) => event === 'crash');
      assert.equal(lines.length, 1);
      assert.equal(lines[0]!['error'], error);
      assert.doesNotMatch(service.output, /CANARY|secret/, 'no content');

      await service.start();
      assert.equal((await fetch(`${service.url}/readyz`)).status, 200);
      const answer = await service.chat({ model: 'demo', messages: [{ role: 'user', content: 'x' }] });
      assert.equal(answer.status, 200);
      await ledger.verify({ owned: true });
    },
  );
}

test('no new work after a crash, and a second crash ends the process at once', options, async (t) => {
  const { service, fault } = await faulty(t);
  const ledger = new TestLedger(service);
  const streamed = await send(service, 'for ever', true);
  await until(() => streamed.client.events.length > 2, waitMs);
  await until(async () => (await ledger.openRequests()) === 1, waitMs);
  const late = await RawClient.connect(service.url);
  const bytes = chatBytes(service.key, newRequestId(), {
    model: 'demo',
    messages: [{ role: 'user', content: 'x' }],
  });
  late.send(bytes.slice(0, 40));
  const exit = service.exited();
  fault('exception');
  await until(() => service.log.some(({ event }) => event === 'crash'), waitMs);
  late.send(bytes.slice(40));
  await until(() => late.status > 0 || late.isClosed, waitMs);
  assert.equal(late.status, 503);
  assert.ok(!streamed.client.isClosed, 'what runs goes on');
  fault('exception');
  assert.deepEqual(await exit, { code: 70, signal: null });
  await streamed.client.closed;
  assert.doesNotMatch(streamed.client.text, /\[DONE\]/, 'nobody waited for it');

  // Killed, in effect: the next start does what has to be done.
  await service.start();
  // The list of open requests does not know what the client sent as its id.
  const [row] = await ledger.newest(1);
  assert.deepEqual([row?.ending, row?.costMicrocents], ['crashed', 0n]);
  await ledger.verify({ owned: true });
});

test('of an error the log tells the kind and our line, and never its words', () => {
  const hostile = new TypeError('x\n    at evil (/x/src/evil.ts:6:6)');
  const reported = nameAndPlace(hostile);
  assert.equal(reported.error, 'TypeError');
  assert.doesNotMatch(String(reported.place), /evil/);
  const ours = new Error('a');
  ours.stack =
    'Error: a\n    at node:internal/x:1:1\n    at run (file:///home/me/src/inference/pipeline/run.ts:40:5)\n    at b (/src/c.ts:1:1)';
  assert.equal(nameAndPlace(ours).place, 'src/inference/pipeline/run.ts:40:5');
  ours.message = 'changed since';
  assert.equal(nameAndPlace(ours).place, null, 'a stack that cannot be separated from its message is left out');
  assert.equal(nameAndPlace(Object.assign(new Error('a'), { name: 'a secret' })).error, 'Error');
  assert.equal(nameAndPlace(Object.assign(new Error('a'), { code: 'ENOSPC' })).error, 'Error ENOSPC');
  assert.equal(nameAndPlace(Object.assign(new Error('a'), { code: 'a secret' })).error, 'Error');
  assert.deepEqual(nameAndPlace('a secret'), { error: 'string', place: null });
  assert.deepEqual(nameAndPlace(undefined), { error: 'undefined', place: null });
  const trap = new Error('a');
  Object.defineProperty(trap, 'message', {
    get: () => {
      throw new Error('again');
    },
  });
  assert.deepEqual(nameAndPlace(trap), { error: 'Error', place: null });
});
