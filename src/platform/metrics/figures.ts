/**
 * Metrics at one moment, as data: of one process, or of several merged into one page. The text is for Prometheus (exposition format
 * 0.0.4).
 */

export type MetricType = 'counter' | 'gauge' | 'histogram';

/**
 * How the figures of several processes are merged: their sum; the smallest; each one, labelled with its process; or the first
 * process's, which stands for all.
 */
export type Across = 'sum' | 'least' | 'each' | 'first';

/** The description of a metric, for scrapers and the documentation. */
export interface Description {
  readonly name: string;
  readonly type: MetricType;
  readonly labels: readonly string[];
  readonly help: string;
  readonly across: Across;
}

/** The counts of a histogram's buckets, the last one without an upper end. */
export interface BucketFigures {
  /** Upper ends, ascending; one fewer than counts. */
  readonly bounds: readonly number[];
  readonly counts: readonly number[];
  readonly sum: number;
}

/** Labels as printed, without braces, and the value. */
export type SeriesFigures = readonly [labels: string, value: number | BucketFigures];

export interface FamilyFigures {
  readonly description: Description;
  readonly series: readonly SeriesFigures[];
}

export function printFigures(families: readonly FamilyFigures[]): string {
  let text = '';
  for (const { description, series } of families) {
    const { name, type, help } = description;
    text += `# HELP ${name} ${escapedHelp(help)}\n# TYPE ${name} ${type}\n`;
    for (const [labels, value] of series) {
      text += typeof value === 'number' ? `${name}${braces(labels)} ${number(value)}\n` : buckets(name, labels, value);
    }
  }
  return text;
}

/** Merges the figures of several named processes into one page; the first stands for all where only one can. */
export function mergedFigures(
  processes: readonly { readonly process: string; readonly families: readonly FamilyFigures[] }[],
): readonly FamilyFigures[] {
  const merged = new Map<string, { readonly description: Description; readonly series: Map<string, SeriesFigures> }>();
  for (const { process, families } of processes) {
    for (const { description, series } of families) {
      const known = merged.get(description.name);
      const family = known ?? { description, series: new Map<string, SeriesFigures>() };
      merged.set(description.name, family);
      if (known !== undefined && description.across === 'first') continue;
      for (const [labels, value] of series) {
        const own = description.across === 'each' ? withProcess(labels, process) : labels;
        const before = family.series.get(own);
        family.series.set(own, [own, before === undefined ? value : joined(description.across, before[1], value)]);
      }
    }
  }
  return [...merged.values()].map(({ description, series }) => ({ description, series: [...series.values()] }));
}

/** The value of a metric with these label values; undefined if there is none. */
export function figureOf(
  families: readonly FamilyFigures[],
  name: string,
  ...values: readonly string[]
): number | undefined {
  const family = families.find(({ description }) => description.name === name);
  const wanted = labelsText(family?.description.labels ?? [], values);
  const value = family?.series.find(([labels]) => labels === wanted)?.[1];
  return typeof value === 'number' ? value : undefined;
}

/** The sum of the series whose first labels have these values. */
export function sumOfFigures(families: readonly FamilyFigures[], name: string, ...values: readonly string[]): number {
  const family = families.find(({ description }) => description.name === name);
  const wanted = labelsText((family?.description.labels ?? []).slice(0, values.length), values);
  let sum = 0;
  for (const [labels, value] of family?.series ?? [])
    if (typeof value === 'number' && labels.startsWith(wanted)) sum += value;
  return sum;
}

/** The values of all series of a metric: of several processes, or with several labels. */
export const figuresOf = (families: readonly FamilyFigures[], name: string): readonly number[] =>
  (families.find(({ description }) => description.name === name)?.series ?? []).flatMap(([, value]) =>
    typeof value === 'number' ? [value] : [],
  );

/** What is kept of an ended process: its counters still count. */
export const countsOf = (families: readonly FamilyFigures[]): readonly FamilyFigures[] =>
  families.filter(({ description: { type, across } }) => type !== 'gauge' && across === 'sum');

function joined(across: Across, one: SeriesFigures[1], other: SeriesFigures[1]): SeriesFigures[1] {
  if (typeof one === 'number' && typeof other === 'number')
    return across === 'least' ? Math.min(one, other) : one + other;
  if (typeof one === 'number' || typeof other === 'number') throw new Error('a metric is of two kinds');
  const { bounds, counts, sum } = one;
  return { bounds, counts: counts.map((count, index) => count + (other.counts[index] ?? 0)), sum: sum + other.sum };
}

export const labelsText = (labels: readonly string[], values: readonly string[]): string =>
  labels.map((label, index) => `${label}="${escapedLabel(values[index] ?? '')}"`).join(',');

/** Parses labels printed by `labelsText`. */
export const labelsOf = (text: string): readonly (readonly [label: string, value: string])[] =>
  [...text.matchAll(/([a-z_]+)="((?:[^"\\]|\\.)*)"/g)].map(([, label = '', value = '']) => [
    label,
    value.replaceAll(/\\(.)/g, (_, escaped: string) => (escaped === 'n' ? '\n' : escaped)),
  ]);

const withProcess = (labels: string, process: string): string =>
  `${labels}${labels === '' ? '' : ','}${labelsText(['process'], [process])}`;

function buckets(name: string, labels: string, { bounds, counts, sum }: BucketFigures): string {
  const separator = labels === '' ? '' : ',';
  let text = '';
  let count = 0;
  counts.forEach((inBucket, index) => {
    count += inBucket;
    const bound = bounds[index];
    text += `${name}_bucket{${labels}${separator}le="${bound === undefined ? '+Inf' : number(bound)}"} ${count}\n`;
  });
  return `${text}${name}_sum${braces(labels)} ${number(sum)}\n${name}_count${braces(labels)} ${count}\n`;
}

const braces = (labels: string): string => (labels === '' ? '' : `{${labels}}`);

const escapedLabel = (text: string): string =>
  text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n').replaceAll('"', '\\"');

const escapedHelp = (text: string): string => text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n');

function number(value: number): string {
  if (value === Infinity) return '+Inf';
  if (value === -Infinity) return '-Inf';
  return String(value);
}
