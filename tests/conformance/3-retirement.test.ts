import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { askChat, plainBody } from '../inference/http/chat.ts';
import { assertEnvelope } from '../inference/http/envelope.ts';
import { exchange } from '../inference/http/raw.ts';
import { RawClient, chatBytes, newRequestId } from '../support/raw-client.ts';
import { TestService, until } from '../support/service.ts';
import { built } from '../support/built.ts';

/** Specification part 3 and §9.4, contracts decision 25: a model's way from available to retired. */
const configOf = (deprecation: string, names = ''): string => `models:
  - id: demo
    context_length: 8192
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
${deprecation === '' ? '' : `    deprecation_date: ${deprecation}\n`}    backends:
      - engine: scripted
        scripts:
          - when: { last_text: paced }
            say: [ { text: [ "word " ] } ]
            repeat: 300
            pace_ms: 20
          - say: [ { text: hello } ]
  - id: Stays
${names}    context_length: 8192
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ { engine: scripted, scripts: [ { say: [ { text: hello } ] } ] } ]`;

const hourMs = 3_600_000;
const retiresAt = Date.parse('2999-03-01T00:00:00Z');
const service = new TestService({
  config: configOf(''),
  entry: built('tests/support/clock-entry.ts'),
});
before(() => service.start());
after(async () => {
  await service.verify();
  await service.dispose();
});

interface Card {
  readonly id: string;
  readonly created: number;
  readonly service: Readonly<Record<string, unknown>>;
}
const cards = async (): Promise<readonly Card[]> =>
  (await exchange(service.url, { path: '/v1/models' })).json()['data'] as Card[];
const demoCard = async (): Promise<Card | undefined> => (await cards()).find(({ id }) => id === 'demo');

/** Sets the time of day of the service; it goes on from there. */
async function setClock(time: number): Promise<void> {
  writeFileSync(join(service.folder, 'clock'), String(time));
  process.kill(service.pid, 'SIGUSR2');
  await until(async () => {
    const [card] = await cards();
    return card !== undefined && Math.abs(card.created * 1000 - time) < hourMs / 2;
  }, 60_000);
}

const reload = async (deprecation: string, names = ''): Promise<void> => {
  service.configure({ config: configOf(deprecation, names) });
  const { code, stderr } = await service.command('reload');
  assert.equal(code, 0, stderr);
};

test('§3 available: the card has no deprecation_date', async () => {
  assert.ok(!('deprecation_date' in ((await demoCard())?.service ?? {})));
  assert.equal((await askChat(service)).status, 200);
});

test('§3 scheduled for retirement: the card gains the date, without a restart, and requests are still answered', async () => {
  await reload('2999-03-01');
  assert.equal((await demoCard())?.service['deprecation_date'], '2999-03-01');
  assert.equal((await askChat(service)).status, 200);
});

test('§3 the planned date is reached: gone from the list and 404, to the second, without a restart; what runs finishes', async () => {
  await setClock(retiresAt - hourMs);
  assert.equal((await askChat(service)).status, 200, 'the last hour is still before the date');
  assert.ok((await demoCard()) !== undefined);

  const client = await RawClient.connect(service.url);
  client.send(
    chatBytes(service.key, newRequestId(), {
      model: 'demo',
      stream: true,
      messages: [{ role: 'user', content: 'paced' }],
    }),
  );
  await until(() => client.text.includes('word'), 60_000);

  await setClock(retiresAt);
  assert.equal(await demoCard(), undefined);
  const error = assertEnvelope(await askChat(service), 'model_not_found', { param: 'model' });
  assert.match(String(error['message']), /'demo' has been retired\. This key can use: Stays\.$/);
  assertEnvelope(await askChat(service, { ...plainBody, model: 'DEMO' }), 'model_not_found', { param: 'model' });
  assert.equal((await askChat(service, { ...plainBody, model: 'stays' })).status, 200, 'the others stay');

  await until(() => client.text.includes('[DONE]'), 60_000);
  assert.doesNotMatch(client.text, /"error"/, 'what ran when the date came has finished');
  client.finish();
});

test('§3 to the second: what is there on a card of second s is there only before the date', async () => {
  await setClock(retiresAt - hourMs);
  writeFileSync(join(service.folder, 'clock'), String(retiresAt - 1500));
  process.kill(service.pid, 'SIGUSR2');
  // The list is asked for until the model is gone; each answer tells the second that it was made in.
  for (let isThere = true; isThere;) {
    const listed = await cards();
    const second = listed[0]?.created ?? 0;
    isThere = listed.some(({ id }) => id === 'demo');
    assert.equal(isThere, second * 1000 < retiresAt, `at ${second - retiresAt / 1000} s`);
  }
});

test('§3 the operator takes the date back: the model is there again', async () => {
  await reload('');
  assert.ok((await demoCard()) !== undefined);
  assert.equal((await askChat(service)).status, 200);
});

test('§9.4 a date that has passed, in a file that is read today', async () => {
  await setClock(Date.now());
  await reload('2020-02-29');
  assert.equal(await demoCard(), undefined);
  assertEnvelope(await askChat(service), 'model_not_found', { param: 'model' });
});

const nameIn = async (model: string): Promise<unknown> => {
  const answer = await askChat(service, { ...plainBody, model });
  return answer.status === 200 ? answer.json()['model'] : answer.status;
};

test('other names of a model: answered as the configuration says, listed or not', async () => {
  const names = `    aliases:
      - { name: Old-Name }
      - { name: shown, listed: true }
      - { name: My/Own, listed: true, answers: alias }
`;
  await reload('', names);
  for (const [asked, answered] of [
    ['old-name', 'Stays'],
    ['SHOWN', 'Stays'],
    ['my/own', 'My/Own'],
    ['stays', 'Stays'],
    ['old-name-2', 404],
  ] as const)
    assert.equal(await nameIn(asked), answered, asked);
  const listed = (await cards()).map(({ id, service: { alias_of: of = null } }) => [id, of]);
  assert.deepEqual(listed, [
    ['demo', null],
    ['Stays', null],
    ['shown', 'Stays'],
    ['My/Own', 'Stays'],
  ]);
});

test('a successor is announced on the card, and the names lead to it after the retirement, if the operator says so', async () => {
  await reload('2999-03-01\n    successor: stays');
  assert.equal((await demoCard())?.service['successor'], 'stays');
  assert.equal(await nameIn('demo'), 'demo');
  await reload('2020-02-29\n    successor: stays');
  assert.equal(await nameIn('demo'), 404);
  await reload('2020-02-29\n    successor: stays\n    leads_to_successor: true\n    aliases: [ { name: demo-1 } ]');
  for (const name of ['demo', 'Demo-1']) assert.equal(await nameIn(name), 'Stays');
  assert.equal(await demoCard(), undefined);
});
