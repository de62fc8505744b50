/** The models of an account, as its programs and its people see them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { noFeatures, scriptedModel, TestService, until } from '../support/service.ts';
import { Visitor } from '../support/visitor.ts';

const model = (id: string, more = ''): string => scriptedModel('- { say: [{ text: hi }] }', { id, settings: more });
const further = (id: string, more = ''): string => model(id, more).replace(/^models:\n/, '');

interface Row {
  readonly model: string;
  readonly state: string;
  readonly retires_at: number | null;
  readonly sampling: string;
  readonly endpoints: readonly { readonly path: string; readonly features: readonly string[] }[];
  readonly card: { readonly id: string; readonly created: number; readonly service: { readonly pricing: object } };
}

test('the cards of an account are those that its keys get, with its prices and what is not on them', async (t) => {
  const service = new TestService({
    config: [
      model('demo', noFeatures),
      further('leaving', 'deprecation_date: "2999-01-02"\ndefaults: { temperature: 0.5, system: "Be short." }'),
      further('gone', 'deprecation_date: "2020-01-01"'),
      further('theirs', 'dedicated_to: [acct_somebody]'),
      further('fixed').replace('sampling: honor', 'sampling: fixed'),
    ].join('\n'),
  });
  t.after(() => service.dispose());
  await service.start();
  const person = new Visitor(service);
  await person.becomeOwner();
  const cards = async (): Promise<readonly Row[]> => (await person.get('/v1/models/cards')).data as Row[];
  const ofKey = async (): Promise<unknown[]> => {
    const answer = await fetch(`${service.url}/v1/models`, { headers: { authorization: `Bearer ${service.key}` } });
    const { data } = (await answer.json()) as { data: { id: string }[] };
    return data.toSorted((a, b) => (a.id < b.id ? -1 : 1)).map(timeless);
  };
  const rows = await cards();
  assert.deepEqual(
    rows.map(({ model: id, state, sampling, retires_at: at }) => [id, state, sampling, at]),
    [
      ['demo', 'ready', 'honor', null],
      ['fixed', 'ready', 'fixed', null],
      ['leaving', 'ready', 'honor', Date.parse('2999-01-02T00:00:00Z') / 1000],
    ],
  );
  assert.deepEqual(
    rows.map(({ card }) => timeless(card)),
    await ofKey(),
  );
  const features = new Map(rows[0]!.endpoints.map((endpoint) => [endpoint.path, endpoint.features]));
  assert.deepEqual(Object.fromEntries(features), {
    '/v1/chat/completions': ['streaming'],
    '/v1/completions': ['streaming'],
    '/v1/messages': ['streaming'],
    '/v1/responses': ['streaming'],
  });
  assert.ok(rows[1]!.endpoints.every(({ features: own }) => own.includes('json_schema')));
  assert.deepEqual(
    rows[1]!.endpoints.filter(({ features: own }) => own.includes('tools')).map(({ path }) => path),
    ['/v1/chat/completions', '/v1/messages', '/v1/responses'],
    'a text that is continued calls no tools',
  );
  const prices = await person.get('/v1/models/prices');
  assert.deepEqual(
    (prices.data as { model: string }[]).map((one) => one.model),
    rows.map((row) => row.model),
    'models that are retired have no price either',
  );

  const set = await service.command('prices', 'set', 'demo', '--input', '1', '--output', '2');
  assert.equal(set.code, 0, set.stderr);
  const inputOf = (row: Row | undefined) =>
    (row?.card.service.pricing as { input_cents_per_million: number }).input_cents_per_million;
  await until(async () => inputOf((await cards())[0]) === 1);
  assert.deepEqual(
    (await cards()).map(({ card }) => timeless(card)),
    await ofKey(),
  );
});

/** The list says when it was asked for. */
const timeless = (card: object): object => ({ ...card, created: 0, created_at: '' });
