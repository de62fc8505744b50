import { centsText, dollars } from '../../platform/dollars.ts';
import type { Invoice } from '../../store/repositories/invoices.ts';
import { dateText } from '../../platform/calendar/months.ts';
import { alignedDollars } from './paper.ts';
import type { Column, Fact, Paper, Table } from './paper.ts';
import { roundedCents } from './statement.ts';
import type { Buyer, InvoiceData, Seller, ShownTax, StatementLine } from './statement.ts';

export const readData = (invoice: Pick<Invoice, 'data'>): InvoiceData => JSON.parse(invoice.data) as InvoiceData;

/** Renders an issued document from the data stored with it and nothing else. */
export function paperOf(invoice: Invoice): Paper {
  const data = readData(invoice);
  const { statement, creditNote, timeZone, seller, account, tax } = data;
  const day = (ms: number): string => dateText(ms, timeZone);
  return {
    title: `${nameOf(data)} ${invoice.number}`,
    number: invoice.number,
    issuedAt: invoice.issuedAt,
    author: seller?.name ?? null,
    facts: [
      ['Number', invoice.number],
      ['Date', day(invoice.issuedAt)],
      ...(creditNote === null
        ? [['Period', `${day(invoice.periodStart)} to ${day(invoice.periodEnd - 1)} (${timeZone})`] as const]
        : [
            ['Corrects', `${creditNote.corrects.number} of ${creditNote.corrects.month}`] as const,
            ['Given back in', invoice.month] as const,
          ]),
      ['Account', account.id],
    ],
    parties: partiesOf(data),
    tables: [
      ...(statement === null ? [] : statementTables(statement, day)),
      ...(creditNote === null ? [] : [refundsTable(creditNote, day)]),
    ],
    totals: statementTotals(data),
    notes: [
      ...noteOf(tax),
      ...(creditNote !== null && creditNote.count > creditNote.refunds.length
        ? [
            `The list shows the first ${creditNote.refunds.length} of ${creditNote.count} amounts; the total includes all of them.`,
          ]
        : []),
      ...(isSale(data)
        ? []
        : ['Credit is sold when it is paid for, and each payment has its own receipt: this document sells nothing.']),
      creditNote === null
        ? 'Paid from the credit of the account. Amounts are exact to the millionth of a cent; only the total is rounded.'
        : 'Added to the credit of the account when it was given back.',
    ],
  };
}

/** The title of a document. */
export function nameOf(data: InvoiceData): string {
  if (data.creditNote !== null) return 'Credit note';
  return data.seller === null || !isSale(data) ? 'Monthly statement' : 'Invoice';
}

const isSale = ({ soldMicrocents }: InvoiceData): boolean => soldMicrocents !== '0';

/** Totals of a statement. If part of it was sold on receipts, the tax is that of the rest. */
function statementTotals({
  creditNote,
  totalCents,
  totalMicrocents,
  soldMicrocents,
  tax,
}: InvoiceData): readonly Fact[] {
  const name = creditNote === null ? 'Total' : 'Total given back';
  if (tax === null || soldMicrocents === undefined || soldMicrocents === totalMicrocents)
    return totalsOf(name, totalCents, tax);
  const sold = roundedCents(BigInt(soldMicrocents));
  return [
    ['Of credit that is on receipts', centsText(totalCents - sold)],
    ...totalsOf('', sold, tax).slice(0, 2),
    [`${name} (USD)`, centsText(totalCents)],
  ];
}

export function partiesOf({ seller, buyer }: { readonly seller: Seller | null; readonly buyer: Buyer }) {
  const lines = ({ name, address, email, taxId }: Buyer): readonly string[] =>
    present([name, ...address, email, taxId === null ? null : `Tax id: ${taxId}`]);
  return [
    ...(seller === null ? [] : [{ heading: 'From', lines: lines(seller) }]),
    { heading: 'To', lines: lines(buyer) },
  ];
}

const words = (head: string): Column => ({ head, kind: 'words' });
const whole = (head: string): Column => ({ head, kind: 'whole' });
const figure = (head: string): Column => ({ head, kind: 'figure' });

function statementTables(
  statement: NonNullable<InvoiceData['statement']>,
  day: (ms: number) => string,
): readonly Table[] {
  const { lines: usage, movements, payments, earlierMicrocents, refundsMicrocents } = statement;
  const usageRows = [
    ...usage.map((line): Row => [
      [
        usedIn(line),
        pricesOf(line),
        count(line.requests),
        count(line.promptTokens),
        count(line.cachedTokens),
        count(line.completionTokens),
      ],
      BigInt(line.microcents),
    ]),
    ...(refundsMicrocents === '0'
      ? []
      : [[['Given back for these requests', '', '', '', '', ''], -BigInt(refundsMicrocents)] as const]),
  ];
  const creditRows: readonly Row[] = [
    [['At the beginning', ''], BigInt(statement.openingMicrocents)],
    ...(earlierMicrocents === '0'
      ? []
      : [[['Recorded later for earlier periods', ''], BigInt(earlierMicrocents)] as const]),
    [['Usage', ''], -BigInt(statement.usageMicrocents)],
    ...movements.map(({ name, count: number, microcents }): Row => [[name, count(number)], BigInt(microcents)]),
    [['At the end', ''], BigInt(statement.closingMicrocents)],
  ];
  return [
    {
      caption: 'Usage',
      columns: [
        words('Model'),
        words('Prices per million tokens'),
        figure('Requests'),
        figure('Input tokens'),
        figure('Of these cached'),
        figure('Output tokens'),
        figure('Amount'),
      ],
      rows: withAmounts(usageRows),
    },
    {
      caption: 'Credit of the account',
      columns: [words(''), figure('Number'), figure('Amount')],
      rows: withAmounts(creditRows),
    },
    ...(payments.length === 0
      ? []
      : [
          {
            caption: 'Payments',
            columns: [whole('Paid on'), words('Method'), words('Receipt or reference'), figure('Amount')],
            rows: withAmounts(
              payments.map(({ at, reference, microcents, receipt, method }): Row => [
                [day(at), method ?? '', receipt ?? reference ?? ''],
                BigInt(microcents),
              ]),
            ),
          },
        ]),
  ];
}

function refundsTable(creditNote: NonNullable<InvoiceData['creditNote']>, day: (ms: number) => string): Table {
  return {
    caption: 'Given back',
    columns: [whole('Date'), words('Request'), figure('Amount')],
    rows: withAmounts(
      creditNote.refunds.map(({ at, request, microcents }): Row => [[day(at), request ?? ''], BigInt(microcents)]),
    ),
  };
}

/** The texts of a row, and its amount in microcents. */
type Row = readonly [texts: readonly string[], microcents: bigint];

function withAmounts(rows: readonly Row[]): readonly (readonly string[])[] {
  const amounts = alignedDollars(rows.map(([, microcents]) => microcents));
  return rows.map(([texts], index) => [...texts, amounts[index]!]);
}

/** A total in cents, with the tax included in it. */
export function totalsOf(name: string, cents: number, tax: ShownTax | null): readonly Fact[] {
  if (tax === null) return [[`${name} (USD)`, centsText(cents)]];
  return [
    ['Without tax', centsText(cents - tax.cents)],
    [taxLabel(readTax(tax)), centsText(tax.cents)],
    [`${name} (USD)`, centsText(cents)],
  ];
}

export const noteOf = (tax: ShownTax | null): readonly string[] => present([tax?.note ?? null]);

export const present = (all: readonly (string | null)[]): readonly string[] =>
  all.filter((line) => line !== null && line !== '') as readonly string[];

/** Fills in the fields that earlier versions left out. */
export const readTax = ({ name, ratePerMille, cents, percent, treatment, note }: ShownTax) => ({
  name,
  ratePerMille,
  cents,
  percent: percent ?? (ratePerMille === null ? null : String(ratePerMille / 10)),
  treatment: treatment ?? ('standard' as const),
  note: note ?? null,
});

const count = (value: number): string => value.toLocaleString('en-US');
const taxLabel = ({ name, percent, treatment }: ReturnType<typeof readTax>): string =>
  treatment !== 'standard'
    ? `${name} (${treatmentNames[treatment]})`
    : percent === null
      ? name
      : `${name} ${percent} %`;
const treatmentNames = { exempt: 'exempt', reverse_charge: 'reverse charge' } as const;

/** The model, and how it was used where that has prices of its own. */
function usedIn({ model, plan, tier, priceMultiple }: StatementLine): string {
  // Stays on one line.
  const times = priceMultiple === undefined ? '' : `\u00a0×\u00a0${priceMultiple / 10_000}`;
  const usedBy = [plan === null ? undefined : `plan ${plan}`, tier ? `${tier}${times}` : undefined].filter(
    (use) => use !== undefined,
  );
  return usedBy.length === 0 ? model : `${model} (${usedBy.join(', ')})`;
}

function pricesOf({ inputPrice, outputPrice, cacheReadPrice }: StatementLine): string {
  if (inputPrice === null || outputPrice === null || cacheReadPrice === null) return '';
  // Keeps a price's label on the same line as its amount.
  const price = (name: string, microcents: string): string => `${name}\u00a0${dollars(BigInt(microcents))}`;
  return [
    price('input', inputPrice),
    ...(cacheReadPrice === inputPrice ? [] : [price('cached', cacheReadPrice)]),
    price('output', outputPrice),
  ].join(', ');
}
