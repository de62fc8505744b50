import { existsSync } from 'node:fs';
import path from 'node:path';
import { isCountry } from '../../tax/countries.ts';
import { defaultTaxNotes, type TaxRules } from '../../tax/tax.ts';
import { scaledDecimal } from '../decimal.ts';
import type { Path } from '../document.ts';
import {
  choice,
  flag,
  group,
  integer,
  line,
  list,
  milliseconds,
  number,
  optional,
  partUntilRestart,
  reportTwins,
  required,
  text,
  textLike,
  untilRestart,
  url,
  type Reading,
  type ValueOf,
} from '../setting.ts';

/** Units of an amount: their decimal places in microcents, and how amounts are written in them. */
export const units = {
  microcents: { places: 0, rule: 'a whole number of microcents, for example 2500000' },
  cents: { places: 6, rule: 'cents with at most six decimal places, for example 2.5' },
  dollars: { places: 8, rule: 'dollars with at most eight decimal places, for example 0.125' },
} as const;
export type Unit = keyof typeof units;

/** Largest price and credit, in microcents: their sums stay far below 64 bits. */
const amountMax = 10n ** 15n;

/** Converts to microcents from the decimal text, never through a float. */
export function microcents(unit: Unit, written: number, at: Path, { textOf, report }: Reading): bigint {
  const { places, rule } = units[unit];
  const decimal = textOf(at) ?? String(written);
  const amount = scaledDecimal(decimal, places);
  if (amount !== undefined && amount <= amountMax) return amount;
  report(
    at,
    amount === undefined
      ? `${String(at.at(-1))} is ${decimal.slice(0, 60)}, which cannot be represented exactly; write ${rule}`
      : `${String(at.at(-1))} is ${decimal.slice(0, 60)}, above the largest amount of ${amountMax} microcents; lower it`,
  );
  return 0n;
}

export const accounts = group('settings of new accounts', {
  first_credit_cents: number(
    { minimum: 0, maximum: 1e9 },
    'credit of the first account, in cents',
    { default: 500 },
    (written, at, reading) => microcents('cents', written, at, reading),
  ),
});

const plan = group(
  'a plan; limits that it leaves out do not apply',
  {
    name: required(
      textLike('^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$', 'value of plan_tier in errors when its requests are used up', {
        example: 'standard',
      }),
    ),
    included_requests: integer(
      1,
      1e12,
      'requests that each window includes; they pay for the keys created with --plan, which are refused when they are used up',
      { example: 1000 },
    ),
    window_hours: number(
      { minimum: 0.001, maximum: 8784 },
      'length of the window; needed with included_requests',
      { example: 24 },
      (hours) => milliseconds(hours, 3_600_000),
    ),
    requests_per_minute: integer(1, 1e9, 'requests per minute, of all keys of the account', { example: 60 }),
    tokens_per_minute: integer(1, 1e12, 'tokens of prompts and answers per minute, of all keys of the account', {
      example: 100_000,
    }),
    max_concurrency: integer(1, 1e6, 'requests that run at the same time, instead of concurrency_per_account_max', {
      example: 16,
    }),
    weight: number(
      { minimum: 0.01, maximum: 100 },
      'share of the tokens beside accounts of other plans, where requests wait for a slot',
      { default: 1, example: 2 },
      (written) => written,
    ),
  },
  ({ includedRequests: requests, windowMs, maxConcurrency: concurrencyMax, ...others }, at, { report }) => {
    if ((requests === undefined) !== (windowMs === undefined))
      report(
        [...at, requests === undefined ? 'window_hours' : 'included_requests'],
        'included_requests and window_hours belong together; write both, or neither',
      );
    const quota = requests === undefined || windowMs === undefined ? undefined : { requests, windowMs };
    return { ...others, quota, concurrencyMax };
  },
);

export const plans = list(
  plan,
  {
    maxItems: 1000,
    description: 'plans that accounts can have (tokenhouse accounts plan)',
    example: [{ name: 'standard', included_requests: 1000, window_hours: 24, requests_per_minute: 60 }],
  },
  (entries, at, { report }) => {
    reportTwins(
      entries,
      ({ name }) => name,
      ([index, { name }]) => report([...at, index, 'name'], `two plans have the name ${name}; rename one`),
    );
    return entries.map(([, each]) => each);
  },
);

const onlyCurrency = 'usd';

/** The bounds of a top-up are in the smallest unit of the currency. */
export const payments = group(
  'how accounts pay for credit',
  {
    provider: partUntilRestart(
      choice(
        ['stripe', 'demo', 'none'],
        'stripe; demo: built in, gives credit without money; none: only tokenhouse credits adds credit; when left out, demo for a server that only this computer can reach, else none',
        { example: 'stripe' },
      ),
    ),
    currency: untilRestart(textLike('^[a-z]{3}$', 'currency; only usd is supported', { default: onlyCurrency })),
    topup_cents_min: integer(1, 1e9, 'smallest payment', { default: 100 }),
    topup_cents_max: integer(1, 1e9, 'largest payment', { default: 1_000_000 }),
    stripe_api_url: partUntilRestart(url('URL of the Stripe API, when not Stripe’s own', 'http://127.0.0.1:12111')),
    stripe_automatic_tax: partUntilRestart(
      flag(
        'Stripe Tax computes the tax of each payment from the location of the payer, and receipts show it; it must be set up at Stripe',
        { default: false, example: true },
      ),
    ),
  },
  (values, at, { report }) => {
    const { topupCentsMin, topupCentsMax, currency } = values;
    if (topupCentsMin > topupCentsMax)
      report([...at, 'topup_cents_min'], `the minimum is above the maximum of ${topupCentsMax}; lower it`);
    if (currency !== onlyCurrency)
      report(
        [...at, 'currency'],
        `prices, credit and invoices are in US dollars, and currencies are not converted; leave it out, or set it to ${onlyCurrency}`,
      );
    return values;
  },
);

/** The built-in provider gives away credit, so it must be requested explicitly if users of other computers can pay (`isReached`). */
export function paymentsInUse(
  { provider: given, stripeApiUrl: apiUrl, stripeAutomaticTax: automaticTax, ...others }: ValueOf<typeof payments>,
  isReached: boolean,
  at: Path,
  { environment, fix, report }: Reading,
) {
  const provider = given ?? (isReached ? 'none' : 'demo');
  const isStripe = provider === 'stripe';
  fix([...at, 'provider'], provider);
  fix([...at, 'stripe_api_url'], isStripe ? apiUrl : undefined);
  fix([...at, 'stripe_automatic_tax'], isStripe && automaticTax);
  const { secretKey, webhookSecret } = environment.stripe;
  if (isStripe && secretKey !== undefined && webhookSecret !== undefined)
    return { ...others, provider, stripe: { secretKey, webhookSecret, apiUrl, automaticTax } };
  if (isStripe) {
    const missing = secretKey === undefined ? 'TOKENHOUSE_STRIPE_SECRET_KEY' : 'TOKENHOUSE_STRIPE_WEBHOOK_SECRET';
    report([...at, 'provider'], `the Stripe provider needs credentials; set the environment variable ${missing}`);
  }
  return { ...others, provider, stripe: undefined };
}

const country = (description: string, example: string) =>
  textLike('^[A-Z]{2}$', `${description} (ISO 3166-1)`, { example });

const seller = group('the seller; without it receipts are not invoices', {
  name: required(line('name of the company or the person', { example: 'Example Computing Ltd' })),
  address: list(line('a line of the address', { example: '1 Example Street' }), {
    maxItems: 8,
    description: 'lines of the address',
    example: ['1 Example Street'],
  }),
  country: country('country of the seller', 'DE'),
  tax_id: line('tax number of the seller', { example: 'DE123456789' }),
  email: line('contact address for questions', { example: 'billing@example.org' }),
});

const countryRate = group('the rate for customers in a country', {
  country: required(country('country of the customer', 'FR')),
  name: line('name of the tax there; when left out, the general name', { example: 'TVA' }),
  rate_per_mille: required(integer(0, 1000, 'rate there, in thousandths', { example: 200 })),
});

const tax = group('a tax that the prices include; when left out, no tax is shown', {
  name: required(line('name of the tax', { example: 'VAT' })),
  rate_per_mille: required(integer(0, 1000, 'its rate in thousandths: 190 is 19 percent', { example: 190 })),
  countries: list(
    countryRate,
    { maxItems: 249, description: 'rates by country of the customer; other countries have the rate above' },
    (rates, at, { report }) => {
      for (const [index, { country: code }] of rates)
        if (!isCountry(code))
          report([...at, index, 'country'], `${code} is no country of ISO 3166-1; Greece is GR, the United Kingdom GB`);
      reportTwins(
        rates.filter(([, rate]) => isCountry(rate.country)),
        (rate) => rate.country,
        ([index, rate]) =>
          report([...at, index, 'country'], `${rate.country} has a rate above already; leave one of them out`),
      );
      return rates.map(([, rate]) => rate);
    },
  ),
});

export const invoices = group(
  'contents of receipts and monthly statements (docs/invoices.md)',
  {
    seller: optional(seller),
    tax: optional(tax),
    reverse_charge_note: line('note on documents of customers who account for the tax themselves', {
      default: defaultTaxNotes.reverseCharge,
    }),
    exempt_note: line('note on documents of customers who are exempt from tax', { default: defaultTaxNotes.exempt }),
    prefix: textLike('^[A-Za-z0-9/_-]{0,20}$', 'prefix of document numbers, before the year and a sequence', {
      default: 'TH-',
    }),
    font: text(
      'a TrueType or OpenType font for letters that Helvetica does not have; when left out, DejaVu Sans, Noto Sans or Arial of the system',
      { example: '/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf' },
    ),
  },
  ({ seller: given, tax: taxInFile, font: fontFile, prefix, ...notes }, at, { directory, report }) => {
    const sellerCountry = given?.country;
    if (sellerCountry !== undefined && !isCountry(sellerCountry))
      report([...at, 'seller', 'country'], `${sellerCountry} is no country of ISO 3166-1; write for example DE`);
    const font = fontFile === undefined ? undefined : path.resolve(directory, fontFile);
    if (font !== undefined && !existsSync(font))
      report(
        [...at, 'font'],
        'the file does not exist; write the path of a TrueType or OpenType font, or leave it out',
      );
    const rules: TaxRules = {
      sellerCountry: sellerCountry ?? null,
      rate: taxInFile === undefined ? null : { name: taxInFile.name, ratePerMille: taxInFile.ratePerMille },
      byCountry: (taxInFile?.countries ?? []).map(({ name = taxInFile!.name, ...rate }) => ({ name, ...rate })),
      notes: { exempt: notes.exemptNote, reverseCharge: notes.reverseChargeNote },
    };
    return { seller: given === undefined ? undefined : withoutCountry(given), tax: rules, prefix, font };
  },
);

/** The country determines the tax; documents do not print it separately. */
const withoutCountry = ({ name, address, taxId, email }: ValueOf<typeof seller>) => ({ name, address, taxId, email });
