import { nameOf } from '../check.ts';
import { camel } from '../../platform/camel-case.ts';
import { decimalText } from '../decimal.ts';
import type { Prices } from '../../catalog/pricing.ts';
import type { Path } from '../document.ts';
import { group, number, required, type Reading } from '../setting.ts';
import { microcents, type Unit } from './money.ts';

const price = (unit: Unit, description: string, example: number) =>
  number({ minimum: 0, maximum: 1e15 }, description, { example }, (written, at, reading) =>
    microcents(unit, written, at, reading),
  );

/** In ten-thousandths, as `wholePrice`. */
export const multiple = (description: string, range = { minimum: 0, maximum: 100 }) =>
  number(
    range,
    description,
    { example: Math.min(2, (range.minimum + range.maximum) / 2) },
    (written, at, { report }) => {
      const part = Math.round(written * 10_000);
      if (Math.abs(part - written * 10_000) > 1e-6) report(at, 'has more than four decimals; round it');
      return BigInt(part);
    },
  );

/** The forms of each price in the file; `config show` uses the first. */
const priceForms = {
  input: ['input_dollars_per_million', 'input_cents_per_million'],
  output: ['output_dollars_per_million', 'output_cents_per_million'],
  cache_read: ['cache_read_dollars_per_million', 'cache_read_cents_per_million', 'cache_read_microcents_per_million'],
} as const;

/** 1 cent per million tokens is 1,000,000 microcents per million tokens. */
export const pricing = group(
  'prices of tokens; give each price in one unit',
  {
    input_dollars_per_million: price('dollars', 'dollars per million prompt tokens; 0 is free', 0.05),
    output_dollars_per_million: price('dollars', 'dollars per million generated tokens; 0 is free', 0.2),
    cache_read_dollars_per_million: price(
      'dollars',
      'dollars per million cached prompt tokens; the input price when left out',
      0.025,
    ),
    input_cents_per_million: price('cents', 'the input price in cents, instead', 5),
    output_cents_per_million: price('cents', 'the output price in cents, instead', 20),
    cache_read_cents_per_million: price('cents', 'the price of cached tokens in cents, instead', 2.5),
    cache_read_microcents_per_million: price(
      'microcents',
      'the same in microcents (1 cent = 1,000,000 microcents), instead',
      2_500_000,
    ),
  },
  (values, at, reading) => pricesInUse((form) => values[camel(form)], at, reading),
);

const cost = (description: string, example: number) => price('dollars', description, example);

/** What the operator pays; nobody else sees it. */
export const costs = group(
  'what tokens cost you where somebody else runs the servers: `revenue` shows the margin',
  {
    input_dollars_per_million: required(cost('dollars per million prompt tokens', 0.03)),
    output_dollars_per_million: required(cost('dollars per million generated tokens', 0.12)),
    cache_read_dollars_per_million: cost(
      'dollars per million cached prompt tokens; the input price when left out',
      0.015,
    ),
  },
  ({ inputDollarsPerMillion: input, outputDollarsPerMillion: output, cacheReadDollarsPerMillion: cacheRead }) => ({
    input,
    output,
    cacheRead: cacheRead ?? input,
  }),
);

type PriceForm = (typeof priceForms)[keyof typeof priceForms][number];

function pricesInUse(
  amountIn: (form: PriceForm) => bigint | undefined,
  at: Path,
  { isWritten, report, show }: Reading,
): Prices {
  const given = (which: keyof typeof priceForms): readonly PriceForm[] =>
    priceForms[which].filter((form) => amountIn(form) !== undefined);
  const isInCents = Object.values(priceForms).some((forms) =>
    forms.some((form) => form.includes('cents') && amountIn(form) !== undefined),
  );
  const priceOf = (which: keyof typeof priceForms): bigint | undefined => {
    const [form, other] = given(which);
    if (other !== undefined) report([...at, other], `this price is given twice, as ${form} too; keep one of the two`);
    return form === undefined ? undefined : amountIn(form);
  };
  const needed = (which: 'input' | 'output'): bigint => {
    const inUse = priceOf(which);
    // An invalid price has been reported already.
    if (inUse === undefined && !priceForms[which].some((form) => isWritten([...at, form]))) {
      const [inDollars, inCents] = priceForms[which];
      const [form, example] = isInCents ? [inCents, 5] : [inDollars, 0.05];
      report(
        at,
        `"${form}" is missing in ${nameOf(at)}; add it, for example ${form}: ${example}, or 0 to give these tokens away`,
      );
    }
    return inUse ?? 0n;
  };
  const input = needed('input');
  const output = needed('output');
  const cacheRead = priceOf('cache_read') ?? input;
  if (cacheRead > input) {
    // A hold is taken at the input price, and a charge never exceeds its hold (reliability I2).
    report(
      [...at, given('cache_read')[0]!],
      'cached tokens would cost more than uncached ones, which holds do not cover; lower it to the input price or below',
    );
  }
  for (const [which, inUse] of Object.entries({ input, output, cache_read: cacheRead }))
    show([...at, `${which}_dollars_per_million`], Number(decimalText(inUse, 8)));
  return { input, output, cacheRead };
}
