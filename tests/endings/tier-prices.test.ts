/** What tiers cost: by the card, by an account's rates for all models, and by its rates for one, to the microcent (docs/tiers.md). */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { BatchClient, chatLine } from '../support/batch-client.ts';
import { TestService } from '../support/service.ts';
import { TestLedger } from '../support/test-ledger.ts';
import { verifyAndDispose } from './endings-service.ts';

/** No multiple of these is whole, so each is rounded. */
const listed = { input: 3_333_333n, output: 7_777_777n };
const own = { input: 1_111_111n, output: 2_222_223n };

const model = (id: string, tiers: string): string => `
  - id: ${id}
    context_length: 16384
    pricing: { input_cents_per_million: 3.333333, output_cents_per_million: 7.777777 }
${tiers}    backends: [ { engine: scripted, scripts: [ { say: [ { text: "one two three" } ] } ] } ]`;
const service = new TestService({
  config: `models:${model('tiered', '    tiers: { priority: { price_multiple: 1.5 }, flex: { price_multiple: 0.5 } }\n')}${model('plain', '')}`,
});
let ledger: TestLedger;
before(async () => {
  await service.start();
  ledger = new TestLedger(service);
});
after(() => verifyAndDispose(service));

async function run(...words: string[]): Promise<string> {
  const { code, stdout, stderr } = await service.command(...words);
  assert.equal(code, 0, stderr);
  return stdout;
}

type Tier = 'priority' | 'default' | 'flex' | 'batch';
type Multiples = Readonly<Record<Tier, number>>;
interface Step {
  readonly name: string;
  /** Words after `prices`. */
  readonly commands: readonly (readonly string[])[];
  /** In ten-thousandths, by model. */
  readonly expected: Readonly<Record<'tiered' | 'plain', Multiples>>;
  readonly prices?: typeof listed;
}
const usual = { tiered: listed, plain: listed };
const card: Step['expected'] = {
  tiered: { priority: 15_000, default: 10_000, flex: 5_000, batch: 5_000 },
  plain: { priority: 10_000, default: 10_000, flex: 10_000, batch: 5_000 },
};
const steps: readonly Step[] = [
  { name: 'the card', commands: [], expected: card },
  {
    name: 'rates for all models',
    commands: [['set', '*', '--priority', '3', '--batch', '0.2501']],
    expected: {
      tiered: { priority: 30_000, default: 10_000, flex: 5_000, batch: 2_501 },
      // What it does not sell is `default`, whatever the account's multiple is.
      plain: { priority: 10_000, default: 10_000, flex: 10_000, batch: 2_501 },
    },
  },
  {
    name: 'rates for the model before those for all',
    commands: [['set', 'tiered', '--priority', '1.2345', '--flex', '0']],
    expected: {
      tiered: { priority: 12_345, default: 10_000, flex: 0, batch: 2_501 },
      plain: { priority: 10_000, default: 10_000, flex: 10_000, batch: 2_501 },
    },
  },
  {
    name: 'multiples of prices of its own, which leave the multiples as they were',
    commands: [['set', 'tiered', '--input', '1.111111', '--output', '2.222223']],
    expected: {
      tiered: { priority: 12_345, default: 10_000, flex: 0, batch: 2_501 },
      plain: { priority: 10_000, default: 10_000, flex: 10_000, batch: 2_501 },
    },
    prices: own,
  },
  {
    name: 'the card again',
    commands: [
      ['remove', 'tiered'],
      ['remove', '*'],
    ],
    expected: card,
  },
];

async function served(name: string, tier: Tier): Promise<string> {
  const text = 'what is it';
  if (tier !== 'batch') {
    const answer = await service.chat({
      model: name,
      messages: [{ role: 'user', content: text }],
      service_tier: tier,
    });
    assert.equal(answer.status, 200, await answer.text());
    return answer.headers.get('x-request-id')!;
  }
  const client = new BatchClient(service);
  const { output_file_id: output } = await client.when((await client.of([chatLine('one', text, { model: name })])).id);
  return (await client.results(output))[0]!.response!.request_id;
}

const ceiled = (value: bigint, by: bigint): bigint => (value + by - 1n) / by;

for (const { name, commands, expected, prices = listed } of steps)
  test(`by ${name}`, async (t) => {
    for (const words of commands) await run('prices', ...words);
    for (const id of ['tiered', 'plain'] as const)
      for (const tier of ['default', 'flex', 'priority', 'batch'] as const)
        await t.test(`${id}, ${tier}`, async () => {
          const parts = expected[id][tier];
          const of = id === 'tiered' ? prices : usual.plain;
          const row = await ledger.row(await served(id, tier));
          const sold = id === 'tiered' || tier === 'batch' ? tier : 'default';
          assert.deepEqual([row.tier, row.priceMultiple], [sold, sold === 'default' ? undefined : parts]);
          const [input, output] = [of.input, of.output].map((price) => ceiled(price * BigInt(parts), 10_000n)) as [
            bigint,
            bigint,
          ];
          assert.deepEqual([row.inputPrice, row.outputPrice, row.ending], [input, output, 'finished']);
          const charge = BigInt(row.promptTokens) * input + BigInt(row.completionTokens) * output;
          assert.equal(row.costMicrocents, ceiled(charge, 1_000_000n));
          assert.ok(row.costMicrocents > 0n || parts === 0);
          if (id === 'plain' || tier === 'flex') return;
          const receipt = JSON.parse(await run('explain', row.publicId, '--json')) as Record<string, unknown>;
          assert.deepEqual([receipt['service_tier'], receipt['price_multiple']], [sold, parts / 10_000]);
          if (sold !== 'default')
            assert.match(String(receipt['explanation']), new RegExp(`"${sold}", at ${parts / 10_000} times the usual`));
        });
    const answer = await fetch(`${service.url}/v1/models`, { headers: { authorization: `Bearer ${service.key}` } });
    const { data } = (await answer.json()) as {
      data: { id: string; service: { pricing: { service_tiers?: Record<string, { multiple: number }> } } }[];
    };
    for (const { id, service: of } of data) {
      const shown = of.pricing.service_tiers ?? {};
      for (const [tier, { multiple }] of Object.entries(shown))
        assert.equal(multiple * 10_000, expected[id as 'tiered'][tier as Tier], `${id} ${tier}`);
      assert.equal('priority' in shown, id === 'tiered');
      assert.equal('batch' in shown, expected[id as 'tiered'].batch !== 5_000);
    }
  });

test('rates for all models have no prices, and multiples that make a downgrade dearer are refused', async () => {
  for (const [words, message] of [
    [['*', '--input', '1', '--output', '1'], /name a model/],
    [['tiered', '--input', '1'], /both the input and the output/],
    [['tiered'], /prices, multiples of tiers, or both/],
    [['tiered', '--priority', '0.9'], /from 1 to 100/],
    [['tiered', '--flex', '1.1'], /from 0 to 1/],
    [['tiered', '--batch', '0.00001'], /four decimals/],
  ] as const) {
    const { code, stderr } = await service.command('prices', 'set', ...words);
    assert.notEqual(code, 0, words.join(' '));
    assert.match(stderr, message);
  }
  assert.doesNotMatch(await run('prices', 'list'), /acct_/);
  await run('prices', 'set', '*', '--priority', '1', '--flex', '1');
  assert.match(await run('prices', 'list'), /\*\s.*acct_\w+.*priority ×1, flex ×1/);
});
