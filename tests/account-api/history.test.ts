/** What an operator sees of the last hour, day and week: the requests of a real service, as they came. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { noFigures } from '../../src/store/history-steps.ts';
import { openStore } from '../store/fixture.ts';
import { built } from '../support/built.ts';
import { TestService, until } from '../support/service.ts';
import { Visitor, type Shown } from '../support/visitor.ts';

const model = (id: string, names: readonly string[]): string => `
  - id: ${id}
    context_length: 4096
    pricing: { input_dollars_per_million: 3, output_dollars_per_million: 15 }
    backends:
${names
  .map(
    (name) => `      - name: ${name}
        engine: scripted
        scripts:
          - when: { last_text: fails }
            prompt_tokens: 100
            say: [ { text: word } ]
            fault: { after_tokens: 1, type: error, code: backend_timeout }
          - { prompt_tokens: 100, say: [ { text: [ "word " ] } ], repeat: 20, pace_ms: 2 }`,
  )
  .join('\n')}`;

const service = new TestService({
  config: `models:${model('first', ['a', 'b'])}${model('second', ['only'])}`,
  entry: built('tests/support/quick-clock-entry.ts'),
});
const operator = new Visitor(service);
before(async () => {
  await service.start();
  await operator.becomeOwner();
});
after(() => service.dispose());

const chat = async (id: string, content = 'hi', stream = false): Promise<void> => {
  const answer = await service.chat({ model: id, messages: [{ role: 'user', content }], stream });
  await answer.text();
};
const history = async (query = ''): Promise<readonly Shown[]> =>
  (await operator.get(`/v1/admin/history${query}`)).data as readonly Shown[];
const sum = (rows: readonly Shown[], figure: string): number =>
  rows.reduce((all, row) => all + (row[figure] as number), 0);

const minuteMs = 60_000;
let ahead = 0;
/** The service writes what it has counted as a minute ends. */
function passMinutes(minutes: number): void {
  ahead += minutes * minuteMs;
  writeFileSync(join(service.folder, 'clock'), String(Date.now() + ahead));
  process.kill(service.pid, 'SIGUSR2');
}

test('a service that has just begun has nothing to show, and that is an answer', async () => {
  for (const span of ['hour', 'day', 'week']) assert.deepEqual(await history(`?span=${span}`), []);
});

test('requests, errors, times and tokens are there by minute, quarter and hour, of all, of models and of backends', async () => {
  for (let index = 0; index < 6; index++) await chat('first', 'hi', index % 2 === 0);
  for (let index = 0; index < 3; index++) await chat('second');
  await chat('second', 'fails', true);
  await chat('nobody');
  await until(async () => {
    passMinutes(1);
    return sum(await history(), 'requests') === 11;
  }, 60_000);

  const minutes = await history();
  assert.ok(minutes.length <= 60);
  // Every minute is there, the empty ones too.
  for (const [index, { start_time: start, end_time: end }] of minutes.entries()) {
    assert.equal(end - start, 60);
    assert.equal(start, minutes[0].start_time + 60 * index);
  }
  for (const span of ['hour', 'day', 'week']) {
    const rows = await history(`?span=${span}`);
    const figures = ['requests', 'refused', 'failed', 'prompt_tokens'].map((figure) => sum(rows, figure));
    assert.deepEqual(figures, [11, 1, 1, 1_000], span);
    const busy = rows.find(({ requests }) => requests > 0);
    assert.equal(typeof busy.first_token_p50_ms, 'number');
    assert.ok(busy.first_token_p95_ms >= busy.first_token_p50_ms);
    assert.ok(busy.tokens_per_second > 0 && busy.answer_tokens_per_second > busy.tokens_per_second, span);
  }
  const models = await history('?by=model');
  const of = (id: string) => models.filter((row) => row.model === id);
  assert.deepEqual(
    ['first', 'second', ''].map((id) => [sum(of(id), 'requests'), sum(of(id), 'refused'), sum(of(id), 'failed')]),
    [
      [6, 0, 0],
      [4, 0, 1],
      [1, 1, 0],
    ],
  );
  const backends = await history('?by=backend&span=day');
  assert.deepEqual([...new Set(backends.map((row) => `${row.model} ${row.backend}`))].sort(), [
    'first a',
    'first b',
    'second only',
  ]);
  assert.equal(
    sum(
      backends.filter((row) => row.model === 'first'),
      'requests',
    ),
    6,
  );
  const only = backends.filter(({ backend }) => backend === 'only');
  assert.deepEqual([sum(only, 'requests'), sum(only, 'failed')], [4, 1]);
  assert.equal(sum(await history('?span=week&model=second&backend=only'), 'completion_tokens'), 60);
  assert.equal(sum(await history('?span=week&model=first&backend=only'), 'requests'), 0);
  const { status, body } = await operator.ask('GET', '/v1/admin/history?span=year');
  assert.deepEqual([status, body.error.param], [422, 'span']);
});

test('what came before the service stopped is there when it runs again, and the command shows the same', async (t) => {
  const before = sum(await history('?span=week'), 'requests');
  await chat('second');
  await service.stop();
  const store = await openStore(t, join(service.folder, 'data', 'tokenhouse.db'));
  const at = Math.floor(Date.now() / minuteMs - 3) * minuteMs;
  const rows = [0, 1].map((minute) => ({
    ...noFigures,
    ...{ at: at + minute * minuteMs, model: 'kept', backend: '', requests: 7, completionTokens: 1_200 },
  }));
  await store.repositories.addHistory({ rows, now: Date.now() });
  await store.close();
  const printed = await service.command('history', '--span', 'hour', '--by', 'model', '--model', 'kept');
  assert.equal(printed.code, 0, printed.stderr);
  const lines = printed.stdout.trim().split('\n');
  assert.match(lines[0]!, /^at +model +backend +requests/);
  assert.equal(lines.length, 3);
  assert.match(lines[1]!, / kept .* 7 .* 1200 .*20$/);
  const { stdout } = await service.command('history', '--model', 'kept', '--json');
  assert.equal(sum(JSON.parse(stdout) as readonly Shown[], 'requests'), 14);

  await service.start();
  passMinutes(2);
  await until(async () => {
    passMinutes(1);
    return sum(await history('?span=week&model=second'), 'requests') >= 5;
  }, 60_000);
  assert.equal(sum(await history('?span=week'), 'requests'), before + 1 + 14);
});
