/**
 * Real llama-servers that the service starts itself: two of them share one GPU by turns, and whatever becomes of one is an ending like any
 * other. A command first reads a file of the service's folder, with which a test breaks the next start.
 */
import assert from 'node:assert/strict';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';

import { TestService, until, type UsageLine } from '../../support/service.ts';
import { TinyModels, briefText, llamaServerBinary, scriptedTiny } from './llama-server.ts';

const models = new TinyModels();
let service: TestService;

const wrapper = '[ -f "$0.sh" ] && . "./$0.sh"; exec "$@"';

const modelOf = (id: string, managed: string): string => {
  const command = [
    ...['/bin/sh', '-c', wrapper, id, llamaServerBinary(), '-m', models.write(id, scriptedTiny)],
    ...['--host', '127.0.0.1', '--port', '{port}', '-np', '4', '-c', '65536', '--jinja', '--no-context-shift'],
    ...['--no-warmup', '-t', '1', '-tb', '1', '-ngl', '0', '--no-webui', '--cache-ram', '0', '--no-repack'],
  ];
  return `
  - id: ${id}
    context_length: 16384
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends:
      - engine: openai
        flavor: llama-server
        managed:
          command: ${JSON.stringify(command)}
          ${managed}`;
};

before(async () => {
  service = await new TestService({
    limits: '  prime_timeout_seconds: 0.2',
    environment: {
      AWS_SECRET_ACCESS_KEY: 'secret-of-s3',
      STRIPE_SECRET_KEY: 'secret-of-stripe',
      HF_TOKEN: 'secret-of-hf',
    },
    config: `models:${[
      modelOf('left', 'group: gpu\n          share: 1'),
      modelOf('right', 'group: gpu\n          share: 1'),
      modelOf('alone', 'start: at_start\n          env: ["ONE=1"]'),
      modelOf('idle', 'idle_stop_minutes: 0.01'),
      modelOf('late', 'start_timeout_seconds: 5'),
      modelOf('broken', 'start_timeout_seconds: 60'),
    ].join('')}`,
  }).start();
});

after(async () => {
  await service.verify();
  await service.dispose();
  models.dispose();
});

/** What the log says of a model's server. */
const events = (model: string, event: string): readonly Readonly<Record<string, unknown>>[] =>
  service.log.filter((line) => line['event'] === `server_${event}` && line['model'] === model);
const loads = (model: string): number => events(model, 'ready').length;
const pidOf = (model: string): number => Number(events(model, 'starting').at(-1)?.['pid']);
const isAlive = (pid: number): boolean => existsSync(`/proc/${pid}/exe`);

/** Has the file read at the next starts; `undefined`: nothing is broken any more. */
function beforeStart(model: string, shell: string | undefined): void {
  const file = join(service.folder, `${model}.sh`);
  if (shell === undefined) rmSync(file, { force: true });
  else writeFileSync(file, shell);
}

async function ask(model: string, others: object = {}): Promise<{ readonly status: number; readonly text: string }> {
  const messages = [{ role: 'user', content: '<brief>' }];
  const answer = await service.chat({ model, messages, temperature: 0, ...others });
  return { status: answer.status, text: await answer.text() };
}

async function isServed(model: string): Promise<void> {
  const { status, text } = await ask(model);
  assert.equal(status, 200, text);
  assert.match(text, new RegExp(briefText));
}

/** Asks for an answer without an end, does something to its server when it has begun, and returns the rest of the stream. */
async function interrupted(model: string, harm: () => void): Promise<string> {
  const messages = [{ role: 'user', content: '<endless>' }];
  const answer = await service.chat({ model, messages, temperature: 0, stream: true });
  assert.equal(answer.status, 200);
  let text = '';
  let isHarmed = false;
  for await (const bytes of answer.body!) {
    text += Buffer.from(bytes).toString();
    if (isHarmed || !text.includes('further')) continue;
    isHarmed = true;
    harm();
  }
  assert.ok(isHarmed, text.slice(0, 500));
  return text;
}

async function lastEnding(model: string): Promise<UsageLine> {
  const { requests } = await service.usage(1);
  assert.equal(requests[0]!.model, model);
  return requests[0]!;
}

test('two that exclude each other: 60 alternating requests, at most three loads, and never both', async () => {
  let both = 0;
  const looks = setInterval(() => {
    if (isAlive(pidOf('left')) && isAlive(pidOf('right'))) both++;
  }, 20);
  const answers = await Promise.all(
    Array.from({ length: 60 }, async (_, turn) => {
      await delay(turn * 5);
      return ask(turn % 2 === 0 ? 'left' : 'right');
    }),
  );
  clearInterval(looks);
  for (const { status, text } of answers) assert.equal(status, 200, text);
  // A queue that serves all that it has before it swaps loads each of them once.
  assert.ok(loads('left') + loads('right') <= 3, `${loads('left')} + ${loads('right')} loads`);
  assert.equal(both, 0);
  const { requests } = await service.usage(60);
  assert.equal(requests.filter(({ ending, cost_microcents: cost }) => ending === 'finished' && cost > 0).length, 60);
});

test('each waits for the other at most one turn, also while the other has always something to do', async () => {
  const stop = new AbortController();
  const busy = Array.from({ length: 2 }, async () => {
    while (!stop.signal.aborted) await isServed('right');
  });
  await until(() => isAlive(pidOf('right')));
  const beganMs = performance.now();
  await isServed('left');
  const waitedMs = performance.now() - beganMs;
  stop.abort();
  await Promise.all(busy);
  assert.ok(waitedMs < 20_000, `${waitedMs} ms`);
});

test('its environment has none of the secrets of the service', async () => {
  await isServed('alone');
  const environment = readFileSync(`/proc/${pidOf('alone')}/environ`, 'utf8');
  assert.match(environment, /(^|\0)PATH=/);
  assert.match(environment, /(^|\0)ONE=1/);
  assert.doesNotMatch(environment, /secret-of|TOKENHOUSE|TEST_/);
});

test('killed in the middle of an answer: its stream ends with an error, nothing is charged, and the next has a new server', async () => {
  await isServed('alone');
  const before = pidOf('alone');
  const text = await interrupted('alone', () => process.kill(before, 'SIGKILL'));
  // Contracts §1.0: the error, then [DONE], and no usage.
  assert.match(text, /data: \{"error":.*\}\n\ndata: \[DONE\]\n\n$/);
  const { ending, cost_microcents: cost } = await lastEnding('alone');
  assert.deepEqual([ending, cost], ['failed', 0]);
  await until(() => pidOf('alone') !== before && loads('alone') === events('alone', 'starting').length, 30_000);
  await isServed('alone');
});

test('frozen in the middle of an answer: it is killed, and the answer ends like any that breaks', async () => {
  await isServed('alone');
  const before = pidOf('alone');
  const text = await interrupted('alone', () => process.kill(before, 'SIGSTOP'));
  assert.match(text, /"error"/);
  const { ending, cost_microcents: cost } = await lastEnding('alone');
  assert.deepEqual([ending, cost], ['failed', 0]);
  assert.equal(events('alone', 'silent').at(-1)?.['pid'], before);
  await until(() => !isAlive(before) && pidOf('alone') !== before);
  await until(() => loads('alone') === events('alone', 'starting').length, 30_000);
  await isServed('alone');
});

test('killed again and again: it is started after longer and longer pauses', async () => {
  const pauses: number[] = [];
  for (let turn = 0; turn < 3; turn++) {
    await until(() => isAlive(pidOf('alone')) && loads('alone') === events('alone', 'starting').length, 30_000);
    const failures = events('alone', 'failed').length;
    process.kill(pidOf('alone'), 'SIGKILL');
    await until(() => events('alone', 'failed').length > failures);
    pauses.push(Number(events('alone', 'failed').at(-1)!['pauseMs']));
  }
  assert.ok(pauses[0]! < pauses[1]! && pauses[1]! < pauses[2]!, pauses.join(', '));
  await until(() => loads('alone') === events('alone', 'starting').length, 30_000);
  await isServed('alone');
});

test('a slow start is announced by comments, and stopped when idle; the next request starts it again', async () => {
  beforeStart('idle', 'sleep 2');
  const { status, text } = await ask('idle', { stream: true });
  assert.equal(status, 200);
  assert.match(text, /^(: keep-alive\n\n)*: waiting for \d+ s until the model is loaded, 0 were in front/);
  assert.match(text, /\[DONE\]/);
  const pid = pidOf('idle');
  await until(() => !isAlive(pid));
  assert.equal(events('idle', 'failed').length, 0);
  beforeStart('idle', undefined);
  await isServed('idle');
  assert.notEqual(pidOf('idle'), pid);
});

test('too slow: refused without a charge, and the operator reads which setting says so', async () => {
  beforeStart('late', 'sleep 60');
  const { status, text } = await ask('late');
  assert.equal(status, 503, text);
  assert.match(String(events('late', 'failed').at(-1)?.['reason']), /not ready within 5 s \(start_timeout_seconds\)/);
  beforeStart('late', undefined);
  await until(async () => (await ask('late')).status === 200, 30_000);
});

const breaks = {
  'a wrong flag': { shell: 'set -- "$@" --frobnicate', says: /--frobnicate/ },
  'less memory than the model needs': { shell: 'ulimit -v 60000', says: /./ },
  'a file that is not there': { shell: 'set -- "$1" -m /nowhere.gguf --port 1', says: /nowhere\.gguf/ },
} as const;
for (const [what, { shell, says }] of Object.entries(breaks))
  test(`${what}: refused without a charge, with the reason for the operator alone; mended, the next request is served`, async () => {
    beforeStart('broken', shell);
    const failures = events('broken', 'failed').length;
    const { status, text } = await ask('broken');
    assert.equal(status, 503, text);
    assert.match(text, /no_healthy_backends/);
    assert.doesNotMatch(text, /frobnicate|nowhere/);
    const failed = events('broken', 'failed');
    assert.ok(failed.length > failures);
    assert.match(String(failed.at(-1)!['output']), says, JSON.stringify(failed.at(-1)));
    beforeStart('broken', undefined);
    await until(async () => (await ask('broken')).status === 200, 60_000);
    const before = events('broken', 'failed').length;
    process.kill(pidOf('broken'), 'SIGKILL');
    await until(() => events('broken', 'failed').length > before);
  });

test('its port was taken in the meantime: it is started at another one, and nobody is asked who is not it', async () => {
  let isAsked = false;
  const foreign = createServer((request, response) => {
    isAsked ||= request.method === 'POST';
    response.end('{"object":"list","data":[]}');
  });
  // Only once: the file removes itself, and the server begins when its port is taken.
  const portFile = join(service.folder, 'port');
  beforeStart(
    'broken',
    `rm broken.sh
for word; do [ "$before" = --port ] && port=$word; before=$word; done
echo "$port" > port; while [ -f port ]; do sleep 0.1; done; sleep 1`,
  );
  const served = until(async () => (await ask('broken')).status === 200, 60_000);
  // After the starts that failed before, the pause is longer than ten seconds.
  await until(() => existsSync(portFile) && /\d\n/.test(readFileSync(portFile, 'utf8')), 30_000);
  foreign.listen(Number(readFileSync(portFile, 'utf8')), '127.0.0.1', () => rmSync(portFile));
  await served;
  foreign.close();
  assert.ok(!isAsked, 'a foreign server was sent a prompt');
  await isServed('broken');
});

test('a stop of the service ends all of them', async () => {
  await isServed('left');
  const pids = ['left', 'alone'].map(pidOf);
  assert.ok(pids.every(isAlive));
  assert.equal(await service.stop(), 0);
  assert.ok(!pids.some(isAlive));
  await service.start();
});
