/**
 * Real vLLMs that the service starts itself. Each is of three processes: its API server, the one that holds the model, and a tracker of their
 * resources. Whatever becomes of one of them, nobody is charged for what broke, none stays behind, and the next request is served.
 */
import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { TestService, until, type UsageLine } from '../../support/service.ts';
import { contextLength, serveCommand, serveVariables } from './vllm-server.ts';

let service: TestService;

/** Reads a file of the service's folder before each start, with which a test breaks it. */
const wrapper = '[ -f "$0.sh" ] && . "./$0.sh"; exec "$@"';

const modelOf = (id: string, managed: string, args: readonly string[] = []): string => `
  - id: ${id}
    context_length: ${contextLength}
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends:
      - engine: openai
        flavor: vllm
        model: smollm2
        managed:
          command: ${JSON.stringify(['/bin/sh', '-c', wrapper, id, ...serveCommand('model', '{port}', args)])}
          env: ${JSON.stringify(Object.entries(serveVariables).map(([name, value]) => `${name}=${value}`))}
          start_timeout_seconds: 900
          ${managed}`;

before(async () => {
  service = await new TestService({
    limits: '  prime_timeout_seconds: 0.2\n  stream_idle_timeout_seconds: 15',
    environment: { AWS_SECRET_ACCESS_KEY: 'secret-of-s3', HF_TOKEN: 'secret-of-hf' },
    config: `models:${[
      modelOf('left', 'group: gpu\n          share: 1'),
      modelOf('right', 'group: gpu\n          share: 1\n          idle_stop_minutes: 0.05'),
    ].join('')}`,
  }).start();
});

after(async () => {
  try {
    await service.verify();
  } finally {
    await service.dispose();
  }
});

const startMs = 15 * 60_000;
const events = (model: string, event: string): readonly Readonly<Record<string, unknown>>[] =>
  service.log.filter((line) => line['event'] === `server_${event}` && line['model'] === model);
const starts = (model: string): number => events(model, 'starting').length;
const isLoaded = (model: string): boolean => events(model, 'ready').length === starts(model) && starts(model) > 0;
const leaderOf = (model: string): number => Number(events(model, 'starting').at(-1)?.['pid']);

interface Process {
  readonly pid: number;
  readonly name: string;
}

/** The processes of a server, but for the guard beside them. */
function processesOf(leader: number): readonly Process[] {
  return readdirSync('/proc').flatMap((entry) => {
    if (!/^\d+$/.test(entry)) return [];
    try {
      const stat = readFileSync(`/proc/${entry}/stat`, 'utf8');
      const [state, , group] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      const words = readFileSync(`/proc/${entry}/cmdline`, 'utf8').split('\0');
      const isOne = Number(group) === leader && state !== 'Z' && words[0] !== '/bin/sh';
      return isOne ? [{ pid: Number(entry), name: words.join(' ').trim() }] : [];
    } catch {
      return [];
    }
  });
}

function coreOf(model: string): number {
  const processes = processesOf(leaderOf(model));
  const core = processes.find(({ name }) => name.startsWith('VLLM::EngineCore'));
  return core?.pid ?? assert.fail(JSON.stringify(processes));
}

async function ask(model: string, others: object = {}): Promise<{ readonly status: number; readonly text: string }> {
  const messages = [{ role: 'user', content: 'Name three colours.' }];
  const answer = await service.chat({ model, messages, temperature: 0, max_tokens: 8, ...others });
  return { status: answer.status, text: await answer.text() };
}

async function isServed(model: string): Promise<void> {
  const { status, text } = await ask(model);
  assert.equal(status, 200, text);
}

async function lastOf(model: string): Promise<UsageLine> {
  const { requests } = await service.usage(1);
  assert.equal(requests[0]!.model, model);
  return requests[0]!;
}

/** Asks for a long answer, does something to its server when it has begun, and returns the stream and the charge. */
async function interrupted(model: string, harm: () => void): Promise<string> {
  const answer = await service.chat({
    model,
    messages: [{ role: 'user', content: 'Count to a thousand.' }],
    temperature: 0,
    max_tokens: 1_500,
    stream: true,
    ignore_eos: true,
    min_tokens: 1_500,
  });
  assert.equal(answer.status, 200);
  let text = '';
  let isHarmed = false;
  for await (const bytes of answer.body!) {
    text += Buffer.from(bytes).toString();
    if (isHarmed || text.split('"content"').length < 5) continue;
    isHarmed = true;
    harm();
  }
  assert.ok(isHarmed, text.slice(0, 500));
  assert.match(text, /data: \{"error":.*\}\n\ndata: \[DONE\]\n\n$/);
  const { ending, cost_microcents: cost } = await lastOf(model);
  assert.deepEqual([ending, cost], ['failed', 0]);
  return text;
}

test('started by the first requests, once, ready only when it answers, and all that waited are served', async (t) => {
  assert.equal(starts('left'), 0);
  const streamed = ask('left', { stream: true });
  const whole = Array.from({ length: 5 }, () => ask('left'));
  await until(() => starts('left') === 1);
  const doctor = await service.command('doctor');
  assert.match(doctor.stdout, /left.*start/, doctor.stdout);
  const { status, text } = await streamed;
  assert.equal(status, 200, text);
  assert.match(text, /^(: keep-alive\n\n)*: waiting for \d+ s until the model is loaded/);
  for (const answer of await Promise.all(whole)) assert.equal(answer.status, 200, answer.text);
  assert.deepEqual([starts('left'), events('left', 'failed').length], [1, 0]);
  t.diagnostic(`ready after ${String(events('left', 'ready')[0]?.['loadMs'])} ms`);
  const { requests } = await service.usage(6);
  assert.ok(requests.every(({ ending, cost_microcents: cost }) => ending === 'finished' && cost > 0));
  const environment = readFileSync(`/proc/${leaderOf('left')}/environ`, 'utf8');
  assert.doesNotMatch(environment, /secret-of|TOKENHOUSE_|TEST_/);
});

for (const [what, victim] of Object.entries({
  'its API server is killed': () => leaderOf('left'),
  'its engine is killed': () => coreOf('left'),
}))
  test(`${what} in the middle of an answer: an error, no charge, nothing left, and the next has a new server`, async () => {
    await isServed('left');
    const [earlier, before] = [processesOf(leaderOf('left')), starts('left')];
    assert.ok(earlier.length >= 2, JSON.stringify(earlier));
    await interrupted('left', () => process.kill(victim(), 'SIGKILL'));
    await until(() => !earlier.some(({ pid }) => existsSync(`/proc/${pid}/exe`)), 60_000);
    await isServed('left');
    assert.equal(starts('left'), before + 1);
  });

for (const [what, victim] of Object.entries({
  'its API server is frozen': () => leaderOf('left'),
  'its engine is frozen': () => coreOf('left'),
}))
  test(`${what}: the answer ends with an error, it is killed, and the next has a new server`, async () => {
    await isServed('left');
    const [earlier, before] = [processesOf(leaderOf('left')), starts('left')];
    await interrupted('left', () => process.kill(victim(), 'SIGSTOP'));
    await until(() => !earlier.some(({ pid }) => existsSync(`/proc/${pid}/exe`)), 120_000);
    await isServed('left');
    assert.equal(starts('left'), before + 1);
  });

test('the other one of its GPU is started when it has left completely, is stopped when idle, and leaves nothing', async () => {
  await isServed('left');
  const left = processesOf(leaderOf('left'));
  let both = 0;
  const looks = setInterval(() => {
    const isThere = left.some(({ pid }) => existsSync(`/proc/${pid}/exe`));
    if (isThere && starts('right') > 0) both++;
  }, 20);
  await isServed('right');
  clearInterval(looks);
  assert.equal(both, 0);
  const right = processesOf(leaderOf('right'));
  assert.ok(right.length >= 2, JSON.stringify(right));
  await until(() => events('right', 'stopped').length === 1, 60_000);
  assert.deepEqual(
    right.filter(({ pid }) => existsSync(`/proc/${pid}/exe`)),
    [],
  );
  assert.equal(events('right', 'failed').length, 0);
});

/** What the start's shell does to the command, and what the operator has to read of it. */
const breaks = {
  'a wrong flag': { shell: 'set -- "$@" --frobnicate', says: /--frobnicate/ },
  'a longer window than the cache has room for': {
    shell: 'export VLLM_ALLOW_LONG_MAX_MODEL_LEN=1; set -- "$@" --max-model-len 1000000',
    says: /1000000/,
  },
} as const;
for (const [what, { shell, says }] of Object.entries(breaks))
  test(`${what}: refused without a charge, and the operator reads why`, async () => {
    await until(() => events('right', 'stopped').length + events('right', 'failed').length === starts('right'), 60_000);
    writeFileSync(join(service.folder, 'right.sh'), shell);
    const before = events('right', 'failed').length;
    // Those that come in the pause after another failure are refused at once.
    await until(async () => {
      const { status, text } = await ask('right');
      assert.equal(status, 503, text);
      assert.doesNotMatch(text, /frobnicate|1000000/);
      return events('right', 'failed').length > before;
    }, startMs);
    const failed = events('right', 'failed').slice(before);
    assert.match(String(failed.at(-1)!['output']), says, JSON.stringify(failed.at(-1)));
    const doctor = await service.command('doctor');
    assert.match(doctor.stdout, says);
    rmSync(join(service.folder, 'right.sh'));
  });

test('a stop of the service ends it, and a killed service leaves none of its processes', async () => {
  await until(() => isServed('left').then(() => isLoaded('left')), startMs);
  const ended = processesOf(leaderOf('left'));
  assert.equal(await service.stop(), 0);
  assert.ok(!ended.some(({ pid }) => existsSync(`/proc/${pid}/exe`)));
  await service.start();
  await isServed('left');
  const killed = processesOf(leaderOf('left'));
  assert.ok(killed.length >= 2);
  await service.stop('SIGKILL');
  await until(() => !killed.some(({ pid }) => existsSync(`/proc/${pid}/exe`)));
  await service.start();
});
