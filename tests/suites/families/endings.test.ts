/** The table of endings (docs/money.md), each row on each API family: recorded the same, charged the same, told in its words. */
import { DatabaseSync } from '@photostructure/sqlite';
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { askRunningService } from '../../../src/app/control/control-client.ts';
import { controlSocketPath } from '../../../src/app/control/socket-path.ts';
import {
  assertNothingLeft,
  verifyAndDispose,
  cost,
  endingsService,
  inputPrice,
  outputPrice,
} from '../../endings/endings-service.ts';
import { TestLedger } from '../../support/test-ledger.ts';
import { until } from '../../support/service.ts';
import { Upstream } from '../../support/upstream.ts';
import type { UpstreamExchange } from '../../support/upstream.ts';
import { ask, askRaw, bodyOf, say } from './exchange.ts';
import { families, lengthWords } from './families.ts';

const options = { timeout: 600_000 };
const waitMs = 60_000;

/** Prompts have one length for all families, so that charges can be compared to the microcent. */
const promptTokens = 11;
const scripts = `
- when: { last_text: one two three }
  prompt_tokens: ${promptTokens}
  say: [ { text: "one two three" } ]
- when: { last_text: fails at once }
  prompt_tokens: ${promptTokens}
  say: [ { text: "one two three" } ]
  fault: { after_tokens: 0, type: error, code: backend_overloaded }
- when: { last_text: is failed by us at once }
  prompt_tokens: ${promptTokens}
  say: [ { text: "one two three" } ]
  fault: { after_tokens: 0, type: error, code: internal_error }
- when: { last_text: fails later }
  prompt_tokens: ${promptTokens}
  say: [ { text: "one two three" } ]
  pace_ms: 2
  fault: { after_tokens: 2, type: error, code: backend_http_error }
- when: { last_text: is cut later }
  prompt_tokens: ${promptTokens}
  say: [ { text: "one two three" } ]
  pace_ms: 2
  fault: { after_tokens: 2, type: cut }
- when: { last_text: says two and stands still }
  prompt_tokens: ${promptTokens}
  say: [ { text: "one two three" } ]
  fault: { after_tokens: 2, type: hang }
- when: { last_text: says more than is paid for }
  prompt_tokens: ${promptTokens}
  say: [ { text: [ "word " ] } ]
  repeat: 8000
`;
const flood = `
- id: flood
  context_length: 1000000
  pricing: { input_cents_per_million: 1, output_cents_per_million: 1 }
  backends:
    - engine: scripted
      scripts: [ { prompt_tokens: ${promptTokens}, say: [ { text: [ "${'x'.repeat(2_000)}" ] } ], repeat: 200000 } ]
`;
const still = 'says two and stands still';
/** Whole answers show nothing while they are made: the request is in the list of what a crash would leave. */
const both = [false, true] as const;
const how = (stream: boolean): string => (stream ? 'streamed' : 'whole');

let seen: UpstreamExchange | undefined;
const upstream = await Upstream.start((exchange) => {
  if (exchange.path.endsWith('/tokenize'))
    exchange.json(200, { count: promptTokens, max_model_len: 16_384, tokens: [] });
  else if (exchange.method === 'POST') seen = exchange;
  else exchange.json(200, {});
});
after(() => upstream.close());

describe('on a service that runs', options, () => {
  const service = endingsService({
    scripts,
    models: `
- id: remote
  context_length: 16384
  pricing: { input_cents_per_million: ${inputPrice}, output_cents_per_million: ${outputPrice} }
  backends: [ { engine: openai, flavor: vllm, url: "${upstream.url}" } ]
`,
  });
  const ledger = (): TestLedger => new TestLedger(service);
  before(() => service.start(), options);
  after(() => verifyAndDispose(service));

  for (const family of families) {
    for (const stream of both) {
      const about = `${family.name}, ${how(stream)}`;

      test(`refused before the hold on ${about}: the error, no row, nothing charged`, async () => {
        const balance = await ledger().balance();
        for (const [fields, status, code] of [
          [{ model: 'nobody' }, 404, 'model_not_found'],
          [{ more: { temperature: 'hot' } }, 422, 'schema_validation_failed'],
          [{ turns: [{ role: 'user', text: 'x'.repeat(80_000) }] }, 400, 'context_length_exceeded'],
          [{ model: 'probe', maxTokens: 16_000 }, 402, 'insufficient_credits'],
        ] as const) {
          const answer = await ask(service, family, say('one two three', { stream, ...fields }));
          assert.equal(answer.status, status, answer.text);
          const error = family.errorOf(answer.text);
          assert.deepEqual([error.code, error.request_id], [code, answer.id]);
          assert.deepEqual(await ledger().rows(answer.id), []);
        }
        assert.equal(await ledger().balance(), balance);
      });

      for (const [said, expected, code] of [
        ['fails at once', 429, 'backend_overloaded'],
        ['is failed by us at once', 500, 'internal_error'],
      ] as const) {
        test(`failed before the first token (${code}) on ${about}: the status of its code, nothing charged`, async () => {
          const balance = await ledger().balance();
          const { id, status, text } = await ask(service, family, say(said, { stream }));
          assert.equal(status, expected, text);
          assert.equal(family.errorOf(text).code, code);
          const row = await ledger().row(id);
          assert.deepEqual([row.ending, row.errorCode, row.costMicrocents], ['failed', code, 0n]);
          assert.equal(await ledger().balance(), balance);
        });
      }

      for (const said of ['fails later', 'is cut later']) {
        test(`failed after the first token (${said}) on ${about}: the error, nothing charged`, async () => {
          const balance = await ledger().balance();
          const { id, status, text } = await ask(service, family, say(said, { stream }));
          assert.equal(status, stream ? 200 : 502, text);
          const error = stream ? family.streamErrorOf(text) : family.errorOf(text);
          assert.deepEqual([error.code, error.request_id], ['backend_http_error', id]);
          const row = await ledger().row(id);
          assert.deepEqual(
            [
              row.ending,
              row.errorCode,
              row.promptTokens,
              row.completionTokens,
              row.costMicrocents,
              row.unchargedMicrocents,
            ],
            ['failed', 'backend_http_error', promptTokens, 2, 0n, cost(promptTokens, 2)],
          );
          assert.equal(await ledger().balance(), balance);
        });
      }

      test(`finished on ${about}: what was shown is what is recorded and charged`, async () => {
        const balance = await ledger().balance();
        const { id, status, text } = await ask(service, family, say('one two three', { stream }));
        assert.equal(status, 200, text);
        const read = stream ? family.readStream(text) : family.readWhole(text);
        assert.equal(read.text, 'one two three');
        assert.deepEqual([read.usage.prompt, read.usage.completion], [promptTokens, 3]);
        const row = await ledger().row(id);
        assert.deepEqual([row.ending, row.finish, row.costMicrocents], ['finished', 'stop', cost(promptTokens, 3)]);
        assert.equal(await ledger().balance(), balance - cost(promptTokens, 3));
      });

      test(`cut by its length on ${about}: charged to the token`, async () => {
        const { id, text } = await ask(service, family, say('one two three', { stream, maxTokens: 2 }));
        const read = stream ? family.readStream(text) : family.readWhole(text);
        assert.deepEqual([read.text, read.finish], ['one two', lengthWords[family.name]]);
        const row = await ledger().row(id);
        assert.deepEqual([row.ending, row.finish, row.costMicrocents], ['finished', 'length', cost(promptTokens, 2)]);
      });

      test(`the client left before the prompt's length was known, on ${about}: pays the counted input`, async () => {
        const balance = await ledger().balance();
        seen = undefined;
        const { client, id } = await askRaw(service, family, say('hello', { model: 'remote', stream }));
        await until(() => seen !== undefined, waitMs);
        client.reset();
        const row = await ledger().row(id, waitMs);
        assert.deepEqual(
          [row.ending, row.promptTokens, row.completionTokens, row.counted, row.costMicrocents],
          ['client_left', promptTokens, 0, true, cost(promptTokens, 0)],
        );
        assert.equal(await ledger().balance(), balance - row.costMicrocents);
      });

      test(`the client left in mid-answer on ${about}: pays the input and what was produced`, async () => {
        const balance = await ledger().balance();
        const { client, id } = await askRaw(service, family, say(still, { stream }));
        await until(async () => (stream ? client.text.includes('two') : (await ledger().openRequests()) === 1), waitMs);
        client.reset();
        const row = await ledger().row(id, waitMs);
        assert.deepEqual(
          [row.ending, row.errorCode, row.promptTokens, row.completionTokens, row.costMicrocents],
          ['client_left', null, promptTokens, 2, cost(promptTokens, 2)],
        );
        assert.equal(await ledger().balance(), balance - row.costMicrocents);
      });

      test(`the key was revoked in mid-answer on ${about}: the error, and what was produced is charged`, async () => {
        const { stdout } = await service.command('keys', 'create', '--json');
        const { id: keyId, key } = JSON.parse(stdout) as { id: string; key: string };
        const balance = await ledger().balance();
        const { client, id } = await askRaw(service, family, say(still, { stream }), { key });
        await until(async () => (stream ? client.text.includes('two') : (await ledger().openRequests()) === 1), waitMs);
        assert.equal((await service.command('keys', 'revoke', keyId)).code, 0);
        const row = await ledger().row(id, waitMs);
        assert.deepEqual(
          [row.ending, row.errorCode, row.completionTokens, row.costMicrocents],
          ['revoked', 'invalid_api_key', 2, cost(promptTokens, 2)],
        );
        await until(() => isWhole(client.text), waitMs);
        const body = bodyOf(client);
        const error = stream ? family.streamErrorOf(body) : family.errorOf(body);
        assert.deepEqual([error.code, error.type, error.request_id], ['invalid_api_key', 'authentication_error', id]);
        if (!stream) assert.equal(client.status, 401);
        assert.equal(await ledger().balance(), balance - row.costMicrocents);
        client.reset();
      });
    }
  }

  for (const stream of both) {
    test(`the account was suspended in mid-answer, ${how(stream)}, on all of them: as a revoked key`, async () => {
      const balance = await ledger().balance();
      const running = await Promise.all(families.map((family) => askRaw(service, family, say(still, { stream }))));
      await until(async () => (await ledger().openRequests()) === families.length, waitMs);
      if (stream) await until(() => running.every(({ client }) => client.text.includes('two')), waitMs);
      const control = controlSocketPath(join(service.folder, 'data'));
      const { accountId } = service;
      await askRunningService(control, { kind: 'suspend_account', accountId });
      for (const [index, { client, id }] of running.entries()) {
        const family = families[index]!;
        const row = await ledger().row(id, waitMs);
        assert.deepEqual(
          [row.ending, row.errorCode, row.completionTokens, row.costMicrocents],
          ['revoked', 'invalid_api_key', 2, cost(promptTokens, 2)],
        );
        await until(() => isWhole(client.text), waitMs);
        const error = stream ? family.streamErrorOf(bodyOf(client)) : family.errorOf(bodyOf(client));
        assert.deepEqual([error.code, error.type, error.request_id], ['invalid_api_key', 'authentication_error', id]);
        client.reset();
      }
      assert.equal(await ledger().balance(), balance - BigInt(families.length) * cost(promptTokens, 2));
      assert.equal((await ask(service, families[0]!, say('one two three'))).status, 401);
      await askRunningService(control, { kind: 'revive_account', accountId });
      assert.equal((await ask(service, families[0]!, say('one two three'))).status, 200);
    });
  }

  for (const stream of both) {
    test(`the charge could not be recorded, ${how(stream)}, on all of them: the error, and nothing is paid`, async () => {
      const balance = await ledger().balance();
      const before = await ask(service, families[0]!, say('one two three'));
      assert.equal(before.status, 200);
      const intruder = new DatabaseSync(ledger().file);
      intruder.exec('begin immediate');
      try {
        const answers = await Promise.all(
          families.map((family) => ask(service, family, say('one two three', { stream }))),
        );
        for (const [index, { status, text }] of answers.entries()) {
          const family = families[index]!;
          // What comes first tells the client; the finish waits for the charge.
          const error = status === 200 ? family.streamErrorOf(text) : family.errorOf(text);
          assert.equal(status, stream ? 200 : 500, text);
          assert.equal(error.code, 'internal_error', family.name);
        }
        intruder.exec('rollback');
        for (const { id } of answers) {
          const row = await ledger().row(id, waitMs);
          assert.equal(row.costMicrocents + row.unchargedMicrocents, cost(promptTokens, 3));
        }
        // The rollback and the end of the wait race: a charge that made it to the disk after all is refunded, once it is there.
        await until(async () => (await ledger().balance()) === balance - cost(promptTokens, 3), waitMs);
      } finally {
        intruder.close();
      }
    });
  }

  test('and nothing is left of any of them', () => assertNothingLeft(service));
});

describe('on a service that waits for nobody', options, () => {
  const service = endingsService({
    scripts,
    models: flood,
    limits: 'request_timeout_seconds: 4\n  reader_stall_timeout_seconds: 1\n  drain_timeout_seconds: 0.2',
  });
  const ledger = (): TestLedger => new TestLedger(service);
  before(() => service.start(), options);
  after(() => verifyAndDispose(service));

  for (const stream of both) {
    test(`ran longer than allowed, ${how(stream)}, on all of them: backend_timeout, nothing charged`, async () => {
      const balance = await ledger().balance();
      const answers = await Promise.all(families.map((family) => ask(service, family, say(still, { stream }))));
      for (const [index, { id, status, text }] of answers.entries()) {
        const family = families[index]!;
        assert.equal(status, stream ? 200 : 504, text);
        const error = stream ? family.streamErrorOf(text) : family.errorOf(text);
        assert.deepEqual([error.code, error.request_id], ['backend_timeout', id]);
        const row = await ledger().row(id, waitMs);
        assert.deepEqual(
          [row.ending, row.errorCode, row.costMicrocents, row.unchargedMicrocents],
          ['deadline', 'backend_timeout', 0n, cost(promptTokens, 2)],
        );
      }
      assert.equal(await ledger().balance(), balance);
    });
  }

  for (const family of families) {
    test(`the client stopped reading on ${family.name}: the stream is cut, and pays the input and what was produced`, async () => {
      const balance = await ledger().balance();
      const asked = say('go on and on', { model: 'flood', stream: true, maxTokens: 200_000 });
      const { client, id } = await askRaw(service, family, asked, { keepsBytes: false });
      await until(() => client.bytesReceived > 0, waitMs);
      client.pause();
      const row = await ledger().row(id, waitMs);
      assert.equal(row.ending, 'reader_stalled');
      assert.ok(row.completionTokens > 0 && row.completionTokens < 200_000, `${row.completionTokens} tokens`);
      assert.equal(row.costMicrocents, BigInt(promptTokens + row.completionTokens));
      assert.equal(await ledger().balance(), balance - row.costMicrocents);
      client.resume();
      await client.closed;
    });
  }

  test('and nothing is left of any of them', () => assertNothingLeft(service));

  test('the service was stopped: no_healthy_backends, nothing charged', async () => {
    const balance = await ledger().balance();
    const running = await Promise.all(
      families.map((family, index) => askRaw(service, family, say(still, { stream: index % 2 === 0 }))),
    );
    await until(async () => (await ledger().openRequests()) === families.length, waitMs);
    assert.equal(await service.stop('SIGTERM'), 0);
    for (const [index, { client, id }] of running.entries()) {
      const family = families[index]!;
      await client.closed;
      const body = bodyOf(client);
      const error = index % 2 === 0 ? family.streamErrorOf(body) : family.errorOf(body);
      assert.deepEqual([error.code, error.request_id], ['no_healthy_backends', id], family.name);
      const row = await ledger().row(id, waitMs);
      assert.deepEqual([row.ending, row.costMicrocents], ['drained', 0n]);
    }
    assert.equal(await ledger().balance(), balance);
  });

  test('the process was killed: nothing charged, recorded as crashed when it starts again', async () => {
    await service.start();
    const balance = await ledger().balance();
    const running = await Promise.all(
      families.map((family, index) => askRaw(service, family, say(still, { stream: index % 2 === 1 }))),
    );
    await until(async () => (await ledger().openRequests()) === families.length, waitMs);
    await service.stop('SIGKILL');
    await Promise.all(running.map(({ client }) => client.closed));
    await service.start();
    for (const row of await ledger().newest(families.length)) {
      assert.deepEqual([row.ending, row.costMicrocents], ['crashed', 0n]);
      assert.ok(row.holdMicrocents > 0n);
    }
    assert.equal(await ledger().balance(), balance);
    await assertNothingLeft(service);
  });
});

describe('credit runs out in mid-answer: an answer that is cut, and what was delivered is charged', options, () => {
  for (const family of families) {
    for (const stream of both) {
      test(`${family.name}, ${how(stream)}`, async (t) => {
        const service = endingsService({ scripts, firstCreditCents: '50' });
        t.after(() => verifyAndDispose(service));
        await service.start();
        const ledger = new TestLedger(service);
        const asked = say('says more than is paid for', { stream, maxTokens: 8_000 });
        const { id, status, text } = await ask(service, family, asked);
        assert.equal(status, 200, text);
        const read = stream ? family.readStream(text) : family.readWhole(text);
        assert.equal(read.finish, lengthWords[family.name]);
        const delivered = [...read.text.matchAll(/word /g)].length;
        assert.ok(delivered > 2_048, `${delivered} tokens: the hold was extended`);
        const row = await ledger.row(id);
        assert.deepEqual(
          [row.ending, row.finish, row.completionTokens, row.costMicrocents],
          ['credit', 'length', delivered, cost(promptTokens, delivered)],
        );
        assert.equal(read.usage.completion, delivered);
        assert.equal(await ledger.balance(), 50_000_000n - row.costMicrocents);
      });
    }
  }
});

/** The last chunk of a stream, or the end of a body of known length. */
const isWhole = (text: string): boolean => text.endsWith('\r\n0\r\n\r\n') || /content-length/i.test(text);
