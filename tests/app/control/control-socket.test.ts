import assert from 'node:assert/strict';
import { chmodSync, existsSync, statSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { controlSocketPath } from '../../../src/app/control/socket-path.ts';
import { TestService, scriptedModel, until } from '../../support/service.ts';

/** The socket through which the command line reaches a running service: who may open it, and what it makes of nonsense. */
const service = new TestService({ config: scriptedModel('- say: [ { text: "hello" } ]') });
let path = '';
before(async () => {
  await service.start();
  path = controlSocketPath(join(service.folder, 'data'));
});
after(() => service.dispose());

/** Sends these bytes; resolves with what comes back until the connection ends. */
const send = (bytes: string): Promise<string> =>
  new Promise((resolve, reject) => {
    let text = '';
    const socket = connect(path, () => socket.write(bytes));
    socket.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
    socket.on('error', (error: NodeJS.ErrnoException) =>
      error.code === 'ECONNRESET' || error.code === 'EPIPE' ? resolve(text) : reject(error),
    );
    socket.on('close', () => resolve(text));
  });

const windows = process.platform === 'win32' ? 'pipes have no modes' : false;

test('only its owner may open it', { skip: windows }, () => {
  assert.equal(statSync(path).mode & 0o777, 0o600);
  assert.equal(statSync(join(service.folder, 'data')).mode & 0o777, 0o700);
  assert.equal(statSync(join(service.folder, 'data', 'secret')).mode & 0o777, 0o600);
});

describe('nonsense is refused and changes nothing', () => {
  for (const [what, line] of [
    ['no JSON', 'hello'],
    ['no object', '[1,2]'],
    ['null', 'null'],
    ['an unknown operation', '{"kind":"drop_everything"}'],
    ['a negative grant', '{"kind":"move_credit","movement":"grant","microcents":"-5","idempotencyKey":"a"}'],
    ['a grant in floats', '{"kind":"move_credit","movement":"grant","microcents":5.5,"idempotencyKey":"a"}'],
    ['a grant of nothing', '{"kind":"move_credit","movement":"grant","microcents":"0","idempotencyKey":"a"}'],
    ['a grant without a key', '{"kind":"move_credit","movement":"grant","microcents":"5"}'],
    ['a key with a name that is none', '{"kind":"create_key","name":7}'],
    ['the name of something that every object has', '{"kind":"constructor"}'],
    ['a prototype', '{"kind":"__proto__","name":"a"}'],
    ['a list of kinds', '{"kind":["create_key"],"name":"a"}'],
    ['a time zone that is a number', '{"kind":"edit_account","timeZone":7}'],
    ['an invitation without a token', '{"kind":"invite","accountId":"a","email":"a@example.org"}'],
    ['a key of a system account', '{"kind":"create_key","name":"a","accountId":"house:cash"}'],
  ] as const) {
    test(what, async () => {
      const reply = JSON.parse(await send(`${line}\n`)) as Record<string, unknown>;
      assert.ok('refused' in reply || 'failed' in reply, JSON.stringify(reply));
    });
  }

  after(async () => {
    assert.equal((await service.usage()).balanceMicrocents, 500_000_000);
    await service.verify();
  });

  test('a line without an end is bounded', async () => {
    assert.equal(await send('x'.repeat(200_000)), '');
  });

  test('a client that leaves in the middle is forgotten', async () => {
    const socket = connect(path, () => {
      socket.write('{"kind":');
      socket.destroy();
    });
    await new Promise((resolve) => socket.on('close', resolve));
    assert.match(await send('{"kind":"create_key","name":"after"}\n'), /"answer"/);
  });
});

test('an expired key made over the socket does not work', async () => {
  const expiresAt = Date.now() + 60_000;
  const reply = JSON.parse(await send(`${JSON.stringify({ kind: 'create_key', name: 'short', expiresAt })}\n`)) as {
    answer: { key: string };
  };
  const ask = async () =>
    (await service.chat({ model: 'demo', messages: [{ role: 'user', content: 'hi' }] }, { key: reply.answer.key }))
      .status;
  assert.equal(await ask(), 200);
  const dead = JSON.parse(
    await send(`${JSON.stringify({ kind: 'create_key', name: 'dead', expiresAt: Date.now() - 1 })}\n`),
  ) as {
    answer: { key: string };
  };
  assert.equal((await service.chat({ model: 'demo', messages: [] }, { key: dead.answer.key })).status, 401);
});

test('a service that was killed leaves a socket behind that stops nobody', { skip: windows }, async () => {
  await service.stop('SIGKILL');
  assert.ok(existsSync(path));
  // Nobody answers there, so the command works on the database itself.
  const alone = await service.command('keys', 'create');
  assert.equal(alone.code, 0, alone.stderr);
  await service.start();
  const through = await service.command('credits', 'grant', '--cents', '1');
  assert.equal(through.code, 0, through.stderr);
  await service.verify();
  await service.stop();
  await until(() => !existsSync(path));
});

test(
  'one that may not be opened is reported in words',
  { skip: windows || (process.getuid?.() === 0 ? 'root may open everything' : false) },
  async () => {
    await service.start();
    chmodSync(path, 0o000);
    const { code, stderr } = await service.command('keys', 'create');
    assert.equal(code, 69);
    assert.match(stderr, /permission denied|EACCES/i);
  },
);
