/** What the scripts of docs/migrate.md leave behind, run on exports as the other products write them (files/migrate). */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { parse } from 'yaml';

import type { KeyObject } from '../../src/account-api/key-object.ts';
import type { TestService } from '../support/service.ts';
import { inRepository } from '../support/repository.ts';

type Listed = KeyObject & { readonly account_id: string };

const dollar = 100_000_000;
const model = 'smollm2-135m-instruct';

/** By the name of the account, the service's own '', and that of the key: models, budget, limits. */
const expected: Readonly<
  Record<string, readonly [models: readonly string[] | null, budget: string | null, limits: readonly (number | null)[]]>
> = {
  '/batch jobs': [[model], '100 monthly', [600, 100_000]],
  "/it's the wiki": [null, null, [null, null]],
  '/Production': [null, '250 weekly', [null, null]],
  '/Trial': [null, '4.25 total', [null, null]],
  'grace/laptop': [[model], '2.5 total', [null, null]],
  'grace/server': [null, null, [null, null]],
  'alan/alan': [null, '1 total', [null, null]],
};

/** `output`: what all of its scripts have printed. */
export async function assertMigrated(service: TestService, output: string): Promise<void> {
  const list = async <Row>(...words: string[]): Promise<readonly Row[]> => {
    const { code, stdout, stderr } = await service.command(...words, '--json');
    assert.equal(code, 0, stderr);
    return JSON.parse(stdout) as readonly Row[];
  };
  const accounts = await list<{ readonly id: string; readonly name: string }>('accounts', 'list');
  const nameOf = (id: string): string => (id === service.accountId ? '' : accounts.find((one) => one.id === id)!.name);
  const keys = (await list<Listed>('keys', 'list')).filter(({ name }) => name !== 'first key');
  const found = keys.map((key) => [
    `${nameOf(key.account_id)}/${key.name}`,
    [
      key.allowed_models,
      key.limit_microcents === null ? null : `${key.limit_microcents / dollar} ${key.limit_reset ?? 'total'}`,
      [key.requests_per_minute, key.tokens_per_minute],
    ],
  ]);
  assert.equal(found.length, Object.keys(expected).length, 'none twice, and none that was blocked');
  assert.deepEqual(Object.fromEntries(found), expected);
  const credits = await list<{ readonly id: string; readonly balance_microcents: number }>('credits', 'show');
  const balances = Object.fromEntries(credits.map(({ id, balance_microcents: balance }) => [nameOf(id), balance]));
  assert.deepEqual([balances['grace'], balances['alan']], [12.34 * dollar, 0]);

  // Every key is shown, once; the service answers under its base URL.
  assert.equal(new Set(output.match(/tkh_\w{38}/g)).size, keys.length);
  assert.match(output, /The capital of France is Paris\./);
  // Prices, as a configuration and as commands.
  const [, priced = ''] = /^# qwen\/qwen3-32b\n(pricing: .*)$/m.exec(output) ?? [];
  assert.deepEqual(parse(priced), {
    pricing: {
      input_dollars_per_million: 0.08,
      output_dollars_per_million: 0.24,
      cache_read_dollars_per_million: 0.04,
    },
  });
  assert.doesNotMatch(output, /gpt-5\.2/, 'no model that was not asked for');
  assert.match(output, /^default: .* --input '\$0\.075' --output '\$0\.3' /m);
  assert.match(output, /^vip: .* --input '\$0\.06' --output '\$0\.24' /m);
}

interface Theirs {
  readonly model_list: readonly {
    readonly model_name: string;
    readonly litellm_params: { readonly api_base: string; readonly api_key: string };
    readonly model_info: { readonly input_cost_per_token: number; readonly output_cost_per_token: number };
  }[];
}

interface Ours {
  readonly models: readonly {
    readonly id: string;
    readonly pricing: Readonly<Record<string, number>>;
    readonly backends: readonly { readonly url: string; readonly api_key_env: string }[];
  }[];
}

/** The two files of the section on LiteLLM say the same, by the rules above them. */
export function assertSameModels(): void {
  const page = readFileSync(inRepository('docs', 'migrate.md'), 'utf8');
  const [theirs, ours] = [...page.matchAll(/```yaml\n([\s\S]*?)```/g)].map(([, text]) => parse(text!) as unknown);
  const million = (price: number): number => Number((price * 1e6).toFixed(6));
  assert.deepEqual(
    (ours as Ours).models.map(({ id, pricing, backends }) => [
      id,
      pricing,
      backends.map((one) => [one.url, one.api_key_env]),
    ]),
    (theirs as Theirs).model_list.map(
      ({ model_name: id, litellm_params: { api_base: url, api_key: key }, model_info: info }) => [
        id,
        {
          input_dollars_per_million: million(info.input_cost_per_token),
          output_dollars_per_million: million(info.output_cost_per_token),
        },
        [[url, key.replace('os.environ/', '')]],
      ],
    ),
  );
}
