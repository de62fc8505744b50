import { dollars } from '../billing/cents.ts';
import type { Invoice } from '../store/invoice-queries.ts';
import { dateText } from '../calendar/months.ts';
import type { InvoiceData, ShownTax, StatementLine } from './statement.ts';

/** A document as it is read, whatever it is printed on: the same words in HTML and in PDF. */
export interface Paper {
  readonly title: string;
  readonly facts: readonly Fact[];
  readonly parties: readonly { readonly heading: string; readonly lines: readonly string[] }[];
  readonly tables: readonly Table[];
  readonly totals: readonly Fact[];
  readonly notes: readonly string[];
}

export type Fact = readonly [label: string, value: string];

export interface Table {
  readonly caption: string;
  readonly head: readonly string[];
  readonly rows: readonly (readonly string[])[];
  /** How many columns from the left are words; the others are figures. */
  readonly words: number;
  /** Shares of the width. */
  readonly widths: readonly number[];
}

export const readData = (invoice: Pick<Invoice, 'data'>): InvoiceData => JSON.parse(invoice.data) as InvoiceData;

/** What an issued document says, from what was stored with it and nothing else. */
export function paperOf(invoice: Invoice): Paper {
  const data = readData(invoice);
  const { statement, creditNote, timeZone, seller, buyer, account } = data;
  const day = (ms: number): string => dateText(ms, timeZone);
  const name = creditNote !== null ? 'Credit note' : seller === null ? 'Monthly statement' : 'Invoice';
  const facts: Fact[] = [
    ['Number', invoice.number],
    ['Date', day(invoice.issuedAt)],
    ...(creditNote === null
      ? [['Period', `${day(invoice.periodStart)} to ${day(invoice.periodEnd - 1)} (${timeZone})`] as const]
      : [
          ['Corrects', `${creditNote.corrects.number} of ${creditNote.corrects.month}`] as const,
          ['Given back in', invoice.month] as const,
        ]),
    ['Account', account.id],
  ];
  return {
    title: `${name} ${invoice.number}`,
    facts,
    parties: [
      ...(seller === null
        ? []
        : [
            {
              heading: 'From',
              lines: lines([seller.name, ...seller.address, seller.email, taxLine(seller.taxId)]),
            },
          ]),
      { heading: 'To', lines: lines([buyer.name, ...buyer.address, buyer.email, taxLine(buyer.taxId)]) },
    ],
    tables: [
      ...(statement === null ? [] : statementTables(statement, day)),
      ...(creditNote === null
        ? []
        : [
            {
              caption: 'Given back',
              head: ['Date', 'Request', 'Amount'],
              rows: creditNote.refunds.map(({ at, request, microcents }) => [
                day(at),
                request ?? '',
                money(microcents),
              ]),
              words: 2,
              widths: [1, 2, 1],
            },
          ]),
    ],
    totals: totalsOf(data),
    notes: [
      ...noteOf(data.tax),
      ...(creditNote !== null && creditNote.count > creditNote.refunds.length
        ? [`The list shows the first ${creditNote.refunds.length} of ${creditNote.count} amounts; the total has all.`]
        : []),
      creditNote === null
        ? 'Paid from the credit of the account. Amounts are exact to the millionth of a cent; only the total is rounded.'
        : 'Added to the credit of the account when it was given back.',
    ],
  };
}

function statementTables(
  statement: NonNullable<InvoiceData['statement']>,
  day: (ms: number) => string,
): readonly Table[] {
  const { lines: usage, movements, payments, earlierMicrocents, refundsMicrocents } = statement;
  return [
    {
      caption: 'Usage',
      head: [
        'Model',
        'Prices per million tokens',
        'Requests',
        'Input tokens',
        'Of these cached',
        'Output tokens',
        'Amount',
      ],
      rows: [
        ...usage.map((line) => [
          line.plan === null ? line.model : `${line.model} (plan ${line.plan})`,
          pricesOf(line),
          count(line.requests),
          count(line.promptTokens),
          count(line.cachedTokens),
          count(line.completionTokens),
          money(line.microcents),
        ]),
        ...(refundsMicrocents === '0'
          ? []
          : [['Given back for these requests', '', '', '', '', '', money(`-${refundsMicrocents}`)]]),
      ],
      words: 2,
      widths: [2.3, 2.9, 1.1, 1.4, 1.4, 1.4, 1.7],
    },
    {
      caption: 'Credit of the account',
      head: ['', 'Number', 'Amount'],
      rows: [
        ['At the beginning', '', money(statement.openingMicrocents)],
        ...(earlierMicrocents === '0' ? [] : [['Recorded later for earlier periods', '', money(earlierMicrocents)]]),
        ['Usage', '', money(negated(statement.usageMicrocents))],
        ...movements.map(({ name, count: number, microcents }) => [name, count(number), money(microcents)]),
        ['At the end', '', money(statement.closingMicrocents)],
      ],
      words: 1,
      widths: [3, 1, 1.5],
    },
    ...(payments.length === 0
      ? []
      : [
          {
            caption: 'Payments',
            head: ['Date', 'Reference', 'Amount'],
            rows: payments.map(({ at, reference, microcents }) => [day(at), reference ?? '', money(microcents)]),
            words: 2,
            widths: [1, 3, 1.2],
          },
        ]),
  ];
}

function totalsOf({ totalCents, tax, creditNote }: InvoiceData): readonly Fact[] {
  const total = creditNote === null ? 'Total' : 'Total given back';
  if (tax === null) return [[`${total} (USD)`, centsText(totalCents)]];
  return [
    ['Without tax', centsText(totalCents - tax.cents)],
    [taxLabel(tax), centsText(tax.cents)],
    [`${total} (USD)`, centsText(totalCents)],
  ];
}

const lines = (all: readonly (string | null)[]): readonly string[] =>
  all.filter((line) => line !== null && line !== '') as readonly string[];

const taxLine = (taxId: string | null): string | null => (taxId === null ? null : `Tax id: ${taxId}`);

const money = (microcents: string): string => dollars(BigInt(microcents));
const negated = (microcents: string): string => String(-BigInt(microcents));
const count = (value: number): string => value.toLocaleString('en-US');
const noteOf = (tax: ShownTax | null): readonly string[] => lines([tax?.note ?? null]);
const taxLabel = ({ name, ratePerMille, treatment = 'standard' }: ShownTax): string =>
  treatment === 'standard' ? `${name} ${percent(ratePerMille)}` : `${name} (${treatmentNames[treatment]})`;
const treatmentNames = { exempt: 'exempt', reverse_charge: 'reverse charge' } as const;
const percent = (perMille: number): string => `${perMille / 10} %`;

/** `$12.35` */
export const centsText = (cents: number): string => dollars(BigInt(cents) * 1_000_000n);

function pricesOf({ inputPrice, outputPrice, cacheReadPrice }: StatementLine): string {
  if (inputPrice === null || outputPrice === null || cacheReadPrice === null) return '';
  const cached = cacheReadPrice === inputPrice ? '' : `, cached ${money(cacheReadPrice)}`;
  return `input ${money(inputPrice)}${cached}, output ${money(outputPrice)}`;
}
