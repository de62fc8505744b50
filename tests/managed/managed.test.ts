/** Servers that the service starts itself: on demand, by turns, and what becomes of requests when they fail. */
import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { BatchClient, chatLine } from '../support/batch-client.ts';
import { built } from '../support/built.ts';
import { TestService, until } from '../support/service.ts';
import { report } from '../support/workers.ts';

const program = built('tests/support/model-server.ts');
let service: TestService;

interface Server {
  readonly id: string;
  readonly loadMs?: number;
  readonly how?: string;
  readonly managed?: string;
  readonly flavor?: string;
}

const modelOf = ({ id, loadMs = 300, how = 'right', managed = '', flavor = 'llama-server' }: Server): string => `
  - id: ${id}
    context_length: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends:
      - engine: openai
        name: own
        flavor: ${flavor}
        managed:
          command: ["${process.execPath}", "${program}", "{port}", "${id}.log", "${loadMs}", "${how}"]
          ${managed}`;

const options = (one = '1') => ({
  limits: '  prime_timeout_seconds: 0.2',
  environment: { TOKENHOUSE_TEST_NOTHING: 'x', AWS_SECRET_ACCESS_KEY: 'secret', OPENAI_API_KEY: 'sk-other' },
  config: `models:${[
    { id: 'demand', managed: 'idle_stop_minutes: 0.02' },
    { id: 'first', managed: `start: at_start\n          env: ["ONE=${one} {port}"]` },
    { id: 'a', managed: 'group: gpu\n          share: 1' },
    { id: 'b', managed: 'group: gpu\n          share: 1' },
    { id: 'seen', managed: 'group: memory' },
    { id: 'told', managed: 'group: memory\n          share: 0.5' },
    { id: 'small', managed: 'group: memory\n          share: 0.000001' },
    { id: 'sleeper', flavor: 'vllm', managed: 'idle_stop_minutes: 0.02\n          sleep: true' },
    { id: 'wrong', how: 'wrong' },
  ]
    .map(modelOf)
    .join('')}`,
});

before(async () => {
  service = new TestService(options());
  await service.start();
});
after(async () => {
  await service.verify();
  await service.dispose();
});

const events = (id: string): readonly string[] => {
  const file = join(service.folder, `${id}.log`);
  return existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n') : [];
};
const starts = (id: string): number => events(id).filter((line) => line.startsWith('start')).length;
const pidOf = (id: string, what = 'start'): number =>
  Number(
    events(id)
      .findLast((line) => line.startsWith(what))
      ?.split(' ')[1],
  );

function isAlive(pid: number): boolean {
  try {
    return !/^\d+ \(.*\) Z/s.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return false;
  }
}

async function ask(model: string, content = 'hello', others: object = {}): Promise<{ status: number; text: string }> {
  const response = await service.chat({ model, messages: [{ role: 'user', content }], ...others });
  return { status: response.status, text: await response.text() };
}

test('on demand: started by the first request, which is told so by comments, and stopped when idle', async () => {
  assert.equal(starts('demand'), 0);
  const { status, text } = await ask('demand', 'hello', { stream: true });
  assert.equal(status, 200, text);
  assert.match(text, /^(: keep-alive\n\n)*: waiting for \d+ s until the model is loaded, 0 were in front/);
  assert.match(text, /asleep: false/);
  const [server, worker] = [pidOf('demand'), pidOf('demand', 'worker')];
  assert.ok(isAlive(server) && isAlive(worker));
  await until(() => !isAlive(server) && !isAlive(worker));
  assert.equal((await ask('demand')).status, 200);
  assert.equal(starts('demand'), 2);
});

test('lines of a batch start it where its memory is free, once, and where others use it they wait for their end', async () => {
  const client = new BatchClient(service);
  const lines = (model: string) => Array.from({ length: 6 }, (_, at) => chatLine(`line-${at}`, 'hello', { model }));
  await until(() => !isAlive(pidOf('demand')));
  const before = starts('demand');
  const batch = await client.when((await client.of(lines('demand'))).id);
  assert.deepEqual(batch.request_counts, { total: 6, completed: 6, failed: 0 });
  assert.equal(starts('demand'), before + 1);

  // The GPU is that of `a`, which a request has just used.
  assert.equal((await ask('a')).status, 200);
  const { id } = await client.of(lines('b'));
  await client.when(id, ({ status }) => status === 'in_progress');
  // The room is looked at every second.
  const beganMs = performance.now();
  await until(() => performance.now() > beganMs + 1_500);
  assert.equal((await ask('a')).status, 200);
  await client.cancel(id);
  assert.equal((await client.when(id)).request_counts.completed, 0);
  assert.equal(starts('b'), 0);
});

test('it gets what its command names, a port, and none of the secrets of the service', async () => {
  assert.equal(starts('first'), 1);
  const { text } = await ask('first', 'variables');
  const { choices } = JSON.parse(text) as { choices: { message: { content: string } }[] };
  const variables = JSON.parse(choices[0]!.message.content) as Record<string, string>;
  assert.match(variables['ONE'] ?? '', /^1 \d+$/);
  assert.equal(variables['PATH'], process.env['PATH']);
  const allowed =
    /^(PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_\w+|TZ|TMPDIR|PWD|OLDPWD|SHLVL|_|XDG_\w+|HF_\w+|LD_LIBRARY_PATH|(CUDA|NVIDIA|SSL)_\w+|ONE)$/;
  assert.deepEqual(
    Object.keys(variables).filter((name) => !allowed.test(name)),
    [],
  );
});

test('two that exclude each other take turns: 60 alternating requests, two loads', async () => {
  const answers = await Promise.all(Array.from({ length: 60 }, (_, count) => ask(count % 2 === 0 ? 'a' : 'b')));
  assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([200]));
  // A queue that serves all that it has before it swaps loads each once.
  assert.ok(starts('a') + starts('b') <= 3, `${starts('a')} + ${starts('b')} loads`);
  assert.ok(!isAlive(pidOf('a')) || !isAlive(pidOf('b')), 'both are loaded');
});

test('those that fit by what they hold are beside each other, and doctor says what was declared and what was learned', async () => {
  for (const id of ['seen', 'told', 'small', 'seen', 'told', 'small']) assert.equal((await ask(id)).status, 200);
  // The group is looked at right after each start.
  await until(() => starts('small') > 0 && service.log.some(({ event }) => event === 'server_exceeds_share'));
  const { stdout } = await service.command('doctor');
  assert.match(stdout, /seen · own · .* · memory: held up to \d+\.\d MB of \d+\.\d GB \(\d+\.\d %\)/);
  assert.match(stdout, /told · own · .* · memory: share 0\.5, held up to /);
  assert.match(stdout, /small · own · .* · memory: share 0\.000001, [\s\S]* holds more of memory than its share says/);
  for (const id of ['seen', 'told', 'small']) assert.equal((await ask(id)).status, 200);
  assert.ok(
    starts('seen') + starts('told') + starts('small') <= 4,
    'the first one may have left for those that were not seen yet',
  );
  assert.ok(['seen', 'told', 'small'].every((id) => isAlive(pidOf(id))));
  const exceeds = service.log.filter(({ event }) => event === 'server_exceeds_share');
  assert.deepEqual(new Set(exceeds.map(({ model }) => model)), new Set(['small']));
  const input = {
    kind: 'create_key',
    accountId: service.accountId,
    name: 'k',
    expiresAt: undefined,
    role: 'owner',
  } as const;
  const { key } = await report(service, { ...input, isOperator: true });
  const authorization = { authorization: `Bearer ${key}` };
  const listed = await fetch(`${service.accountUrl}/v1/admin/backends`, { headers: authorization });
  const { data: shared } = (await listed.json()) as {
    data: { model: string; shared_memory: Record<string, unknown> | null }[];
  };
  const of = (id: string) => shared.find(({ model }) => model === id)?.shared_memory;
  assert.equal(of('first'), null);
  assert.deepEqual(
    { ...of('small'), learned: null },
    { group: 'memory', declared: 0.000001, learned: null, exceeds: true, doubted: false },
  );
  const { on, bytes, of_bytes: all } = of('seen')?.['learned'] as { on: string; bytes: number; of_bytes: number };
  assert.ok(on === 'memory' && bytes > 20e6 && bytes < all, `${on} ${bytes}`);
});

test('a busy one gives up its turn to one that waits', async () => {
  const stop = new AbortController();
  const busy = Array.from({ length: 3 }, async () => {
    while (!stop.signal.aborted) assert.equal((await ask('a')).status, 200);
  });
  await until(() => isAlive(pidOf('a')));
  assert.equal((await ask('b')).status, 200);
  stop.abort();
  await Promise.all(busy);
});

test('vLLM sleeps instead, and its process stays', async () => {
  assert.match((await ask('sleeper')).text, /asleep: false/);
  await until(() => events('sleeper').includes('sleep'));
  assert.match((await ask('sleeper')).text, /asleep: false/);
  assert.equal(starts('sleeper'), 1);
  assert.ok(events('sleeper').includes('wake'));
});

test('wrong flags: refused at once, and the operator reads why', async () => {
  const { status, text } = await ask('wrong');
  assert.equal(status, 503);
  assert.match(text, /no_healthy_backends/);
  assert.doesNotMatch(text, /frobnicate/);
  assert.equal(starts('wrong'), 2);
  const failed = service.log.findLast(({ event }) => event === 'server_failed');
  assert.match(JSON.stringify(failed), /it exited with code 1.*unknown argument: --frobnicate/);
  const doctor = await service.command('doctor');
  assert.match(doctor.stdout, /unknown argument: --frobnicate/);
});

for (const how of ['crash', 'crash later'])
  test(`${how}: the request ends like at any server, and the next one has a new server`, async () => {
    assert.equal((await ask('first')).status, 200);
    const before = starts('first');
    const { status, text } = await ask('first', how, { stream: how !== 'crash' });
    if (how === 'crash') assert.equal(status, 502, text);
    else assert.match(text, /"error"/);
    // Who comes before its end is known is refused like at any server that takes no connection.
    await until(() => starts('first') === before + 1);
    assert.equal((await ask('first')).status, 200);
    assert.equal(starts('first'), before + 1);
    const { requests } = await service.usage(2);
    assert.deepEqual(
      requests.map(({ ending, cost_microcents: cost }) => [ending, cost > 0]),
      [
        ['finished', true],
        ['failed', false],
      ],
    );
  });

test('frozen: stopped by force, and started again', async () => {
  assert.equal((await ask('first')).status, 200);
  const before = starts('first');
  process.kill(pidOf('first'), 'SIGSTOP');
  await until(() => starts('first') === before + 1, 40_000);
  assert.equal((await ask('first')).status, 200);
});

test('a changed server takes the place of the one before, which finishes what it answers', async () => {
  assert.equal((await ask('first')).status, 200);
  const [before, earlier] = [starts('first'), pidOf('first')];
  const running = ask('first', 'slow', { stream: true });
  await until(() => events('first').includes('slow'));
  service.configure(options('2'));
  assert.equal((await service.command('reload')).code, 0);
  const { text } = await running;
  assert.doesNotMatch(text, /"error"/);
  assert.match(text, /\[DONE\]/);
  assert.match((await ask('first', 'variables')).text, /2 \d+/);
  assert.equal(starts('first'), before + 1);
  assert.ok(!isAlive(earlier));
});

test('killed: no server is left, nor what it has started; one whose guard was killed too is found at the next start', async () => {
  assert.equal((await ask('a')).status, 200);
  assert.equal((await ask('first')).status, 200);
  const left = [pidOf('a'), pidOf('a', 'worker'), pidOf('first'), pidOf('first', 'worker')];
  assert.ok(left.every(isAlive));
  await service.stop('SIGKILL');
  await until(() => !left.some(isAlive));

  await service.start();
  await until(() => isAlive(pidOf('first')));
  const orphan = pidOf('first');
  await until(() => guardsOf(orphan).length === 1);
  for (const guard of guardsOf(orphan)) process.kill(guard, 'SIGKILL');
  await service.stop('SIGKILL');
  assert.ok(isAlive(orphan));
  await service.start();
  await until(() => !isAlive(orphan) && isAlive(pidOf('first')));
});

test('a stop of the service ends its servers', async () => {
  assert.equal((await ask('first')).status, 200);
  const servers = [pidOf('first'), pidOf('first', 'worker')];
  assert.equal(await service.stop(), 0);
  assert.ok(!servers.some(isAlive));
});

/** The shells in the process group of a server. */
function guardsOf(pid: number): readonly number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => {
      try {
        const stat = readFileSync(`/proc/${name}/stat`, 'utf8');
        const [, , group] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
        return Number(group) === pid && /\((sh|dash|bash)\)/.test(stat) ? [Number(name)] : [];
      } catch {
        return [];
      }
    });
}
