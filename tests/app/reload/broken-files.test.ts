/** A file that is not right changes nothing, whatever is wrong with it (reliability S8). */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { parseExposition, total } from '../../platform/metrics/exposition.ts';
import { InnerService, until } from '../../support/service.ts';
import { ask, demo, models, reload } from './scene.ts';

/** On one line, so that the lines below stay where they are; without what a busy machine would make a service refuse. */
const limits = '  limits: { shed_large_bodies_lag_seconds: 60, shed_new_work_lag_seconds: 60 }';
const good = (more: string = models(demo())): string =>
  `server:\n  inference: { port: 0 }\n  account: { port: 0 }\n${limits}\naccounts: { first_credit_cents: 500 }\n${more}\n`;

/** Each with what the refusal says, and on which line. */
const broken: readonly (readonly [string, string, number, RegExp])[] = [
  ['no YAML', `${good()}  : [`, 18, /not valid YAML/],
  ['a tab', good().replace('  inference', '\tinference'), 2, /tab|not valid YAML/],
  ['a key twice', `${good()}models: []\n`, 18, /occurs twice/],
  ['a second document', `${good()}---\n{}\n`, 18, /second YAML document/],
  ['nothing', '', 1, /empty/],
  ['only a comment', '# later\n', 1, /empty/],
  ['a list', '- models\n', 1, /must be a group/],
  ['no models', good('models: []'), 6, /list|entries/],
  ['an unknown key', good(`${models(demo())}\nmodles: []`), 18, /did you mean "models"/],
  [
    'a misspelt price',
    good(models(demo()).replace('input_cents', 'inptu_cents')),
    9,
    /"input_cents_per_million" is missing/,
  ],
  ['a negative price', good(models(demo({ input: -1 }))), 9, /must be a number/],
  [
    'a price that cannot be counted',
    good(models(demo()).replace('5,', '0.0000001,')),
    9,
    /cannot be represented exactly/,
  ],
  ['a window that is none', good(models(demo()).replace('8192', 'large')), 8, /whole number/],
  ['two models of one name', good(models(demo(), demo({ id: 'DEMO' }))), 18, /is the same as/],
  ['an unknown engine', good(models(demo()).replace('scripted', 'skripted')), 11, /did you mean "scripted"/],
  ['a model without backends', good(models(demo({ backends: '      []' }))), 11, /backends/],
  [
    'a last script with a condition',
    good(models(demo()).replace('- say: [ { text: "hello', '- when: { turn: 7 }\n            say: [ { text: "hello')),
    17,
    /last script/,
  ],
  [
    'a key from a variable that is not set',
    good(
      models(
        demo({
          backends:
            '      - { engine: openai, flavor: vllm, url: "http://127.0.0.1:1/v1", api_key_env: NOT_SET_ANYWHERE }',
        }),
      ),
    ),
    11,
    /NOT_SET_ANYWHERE is not set/,
  ],
  [
    'another port',
    good().replace('inference: { port: 0 }', 'inference: { port: 18080 }'),
    2,
    /needs? a restart|restart it/,
  ],
  [
    'another database',
    `${good()}storage: sqlite:./other/tokenhouse.db\n`,
    18,
    /storage cannot change while the service runs/,
  ],
  [
    'another public address',
    good().replace('account: { port: 0 }', 'account: { port: 0, public_url: "https://a.example" }'),
    3,
    /public_url cannot change/,
  ],
  [
    'limits that exclude each other',
    good().replace(limits, limits.replace('{', '{ body_bytes_max: 2000, bodies_in_flight_bytes_max: 1500,')),
    4,
    /below body_bytes_max/,
  ],
];

test(`${broken.length} broken files under load: no request fails, the old configuration stays, and each refusal names its line`, async (t) => {
  assert.ok(broken.length >= 20);
  const service = new InnerService({ config: '' });
  t.after(() => service.dispose());
  service.writeConfig(good());
  await service.start();

  let served = 0;
  let over = false;
  const load = Promise.all(
    Array.from({ length: 4 }, async (_, client) => {
      while (!over) {
        const answer = await service.chat(ask('hi', { stream: client % 2 === 0 }));
        const text = await answer.text();
        assert.equal(answer.status, 200, text);
        assert.ok(text.includes('hello') && !text.includes('"error"'), text);
        served++;
      }
    }),
  );
  try {
    for (const [what, text, line, message] of broken) {
      const before = served;
      service.writeConfig(text);
      const outcome = await reload(service);
      assert.equal(outcome.kind, 'refused', what);
      if (outcome.kind !== 'refused') continue;
      assert.equal(outcome.version, 1);
      const [problem] = outcome.problems;
      assert.match(
        problem?.where ?? '',
        new RegExp(`^tokenhouse\\.yaml:${line}:\\d+$`),
        `${what}: ${problem?.where} ${problem?.what}`,
      );
      assert.match(problem?.what ?? '', message, what);
      const logged = () => service.log.findLast(({ event }) => event === 'config_refused');
      await until(() => logged()?.['where'] === problem?.where && logged()?.['what'] === problem?.what);
      await until(() => served > before + 4);
    }
    const refusals = service.log.filter(({ event }) => event === 'config_refused').length;
    assert.ok(refusals >= broken.length);
    const families = parseExposition(await (await fetch(`${service.accountUrl}/metrics`)).text());
    assert.equal(total(families, 'tokenhouse_config_reload_failures_total'), refusals);
    assert.equal(total(families, 'tokenhouse_config_last_reload_success'), 0);
    assert.equal(total(families, 'tokenhouse_config_version'), 1);
    service.writeConfig(good(models(demo({ answer: 'hello again' }))));
    assert.equal((await reload(service)).kind, 'reloaded', 'a file that is right is taken after them');
  } finally {
    over = true;
    await load;
  }
  assert.match(await (await service.chat(ask('hi'))).text(), /hello again/);
  await service.verify();
});

test('`tokenhouse reload` prints what changed, that nothing did, and what is wrong with exit 78', async (t) => {
  const service = new InnerService({ config: models(demo()) });
  t.after(() => service.dispose());
  const alone = await service.command('reload');
  assert.deepEqual([alone.code, alone.stdout], [1, '']);
  assert.match(alone.stderr, /No service is running on the data folder/);
  await service.start();

  const same = await service.command('reload');
  assert.deepEqual([same.code, same.stdout], [0, 'Configuration 1 is in force already; the file has not changed.\n']);

  const file = join(service.folder, 'tokenhouse.yaml');
  const text = readFileSync(file, 'utf8');
  service.writeConfig(`${text.replace('account: { port: 0', 'account: { port: 1')}`);
  const refused = await service.command('reload');
  assert.equal(refused.code, 78, refused.stdout);
  assert.match(refused.stderr, /keeps configuration 1:\ntokenhouse\.yaml:3:\d+: server\.account\.port cannot change/);

  service.writeConfig(text.replace('input_cents_per_million: 5', 'input_cents_per_million: 6'));
  // The service may have noticed by itself before the command asked.
  const changed = await service.command('reload', '--json');
  assert.equal(changed.code, 0, changed.stderr);
  const { kind, version } = JSON.parse(changed.stdout) as { kind: string; version: number };
  assert.ok(kind === 'reloaded' || kind === 'unchanged');
  assert.equal(version, 2);
});
