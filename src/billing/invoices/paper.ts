/** A human-readable document for every output: the same words in HTML, in PDF and on a terminal. */
export interface Paper {
  readonly title: string;
  readonly number: string;
  readonly issuedAt: number;
  /** The seller; null: unnamed. */
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
   * Figures are right-aligned. Neither figures nor `whole` texts, such as dates, are ever broken; words are broken between words, and long
   * names after punctuation.
   */
  readonly kind: 'words' | 'whole' | 'figure';
}

/**
 * Splits a text where lines may end: after a breaking space, and after punctuation inside a long name, so that `meta-llama/Llama-3.3` is
 * broken between its parts. The parts join to the original text.
 */
export const breakable = (text: string): readonly string[] =>
  text.split(/(?<= )(?=[^ ])|(?<=[^\s/_:@-][/_:@-])(?=[^\s/_:@-])/u);

/** Formats the amounts of a column with equal decimals, at least two and as many as the longest needs, so that they align. */
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

/** The file name of a document. */
export const fileNameOf = ({ number }: Pick<Paper, 'number'>): string =>
  `${number.replace(/[^A-Za-z0-9_-]/g, '-')}.pdf`;
