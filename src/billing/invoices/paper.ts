/** A document as it is read, whatever it is printed on: the same words in HTML, in PDF and on a terminal. */
export interface Paper {
  readonly title: string;
  readonly number: string;
  readonly issuedAt: number;
  /** Who sells; null: nobody is named. */
  readonly author: string | null;
  readonly facts: readonly Fact[];
  readonly parties: readonly { readonly heading: string; readonly lines: readonly string[] }[];
  readonly tables: readonly Table[];
  readonly totals: readonly Fact[];
  readonly notes: readonly string[];
}

export type Fact = readonly [label: string, value: string];

export interface Table {
  readonly caption: string;
  readonly columns: readonly Column[];
  readonly rows: readonly (readonly string[])[];
}

export interface Column {
  readonly head: string;
  /**
   * Figures stand at the right. Neither they nor what is `whole`, such as a date, is ever broken; words are broken between
   * words, and long names behind their signs.
   */
  readonly kind: 'words' | 'whole' | 'figure';
}

/**
 * Where a line may end: behind a blank that is none of those that keep words together, and inside a long name behind a sign, so that `meta-llama/Llama-3.3` is broken between
 * its parts. Joined, the parts are the text.
 */
export const breakable = (text: string): readonly string[] =>
  text.split(/(?<= )(?=[^ ])|(?<=[^\s/_:@-][/_:@-])(?=[^\s/_:@-])/u);

/** Amounts of a column, all with as many decimals as the one that has most, and two at least: so they stand below each other. */
export function alignedDollars(microcents: readonly bigint[]): readonly string[] {
  const decimals = Math.max(2, ...microcents.map((amount) => decimalsOf(amount)));
  return microcents.map((amount) => dollarsWith(amount, decimals));
}

function decimalsOf(microcents: bigint): number {
  const digits = String(microcents < 0n ? -microcents : microcents)
    .padStart(9, '0')
    .slice(-8);
  return digits.replace(/0+$/, '').length;
}

function dollarsWith(microcents: bigint, decimals: number): string {
  const digits = String(microcents < 0n ? -microcents : microcents).padStart(9, '0');
  const whole = digits.slice(0, -8).replace(/\B(?=(\d{3})+$)/g, ',');
  return `${microcents < 0n ? '-' : ''}$${whole}.${digits.slice(-8).slice(0, decimals)}`;
}

/** For the file of a document. */
export const fileNameOf = ({ number }: Pick<Paper, 'number'>): string =>
  `${number.replace(/[^A-Za-z0-9_-]/g, '-')}.pdf`;
