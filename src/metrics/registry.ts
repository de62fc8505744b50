/**
 * Counters, gauges and histograms, and their text for Prometheus (exposition format 0.0.4). Label values are ours: names of
 * the configuration and of closed tables, never anything that a client has chosen (reliability §4).
 */

export type MetricType = 'counter' | 'gauge' | 'histogram';

/** What a scraper is told of a metric, and its documentation. */
export interface Description {
  readonly name: string;
  readonly type: MetricType;
  readonly labels: readonly string[];
  readonly help: string;
}

export interface Counter {
  /** Integers above 2^53 lose their last digits, as in Prometheus itself. */
  add(value: number): void;
}

export interface Histogram {
  /** Costs 0.04 µs: it may be called for every chunk. */
  observe(value: number): void;
}

/** Value of a gauge for one combination of labels. */
export type Reading = readonly [labels: readonly string[], value: number];

interface Family {
  readonly description: Description;
  lines(): string;
}

/** Combinations of labels of one metric; those that come on top are counted together as `other`. */
const seriesMax = 5_000;

export class Registry {
  readonly #families: Family[] = [];

  get descriptions(): readonly Description[] {
    return this.#families.map(({ description }) => description);
  }

  /** The returned function finds the counter of some label values, in the order of `labels`. */
  counter(name: string, help: string, labels: readonly string[] = []): (...values: readonly string[]) => Counter {
    const series = new Series(labels, () => ({
      sum: 0,
      add(value: number) {
        this.sum += value;
      },
    }));
    if (labels.length === 0) series.at([]);
    this.#families.push({
      description: { name, type: 'counter', labels, help },
      lines: () => series.print((label, { sum }) => `${name}${braces(label)} ${sum}\n`),
    });
    return (...values) => series.at(values);
  }

  /** Read when somebody asks. */
  gauge(name: string, help: string, labels: readonly string[], read: () => Iterable<Reading>): void {
    this.#read('gauge', name, help, labels, read);
  }

  /** A count that is kept elsewhere and only grows. */
  count(name: string, help: string, read: () => number): void {
    this.#read('counter', name, help, [], () => [[[], read()]]);
  }

  /** `bounds` are the upper ends of the buckets, ascending. */
  histogram(
    name: string,
    help: string,
    labels: readonly string[],
    bounds: readonly number[],
  ): (...values: readonly string[]) => Histogram {
    const series = new Series(labels, () => new Buckets(bounds));
    if (labels.length === 0) series.at([]);
    this.#families.push({
      description: { name, type: 'histogram', labels, help },
      lines: () => series.print((label, buckets) => buckets.print(name, label)),
    });
    return (...values) => series.at(values);
  }

  text(): string {
    let text = '';
    for (const { description, lines } of this.#families) {
      text += `# HELP ${description.name} ${escapedHelp(description.help)}\n# TYPE ${description.name} ${description.type}\n${lines()}`;
    }
    return text;
  }

  #read(type: MetricType, name: string, help: string, labels: readonly string[], read: () => Iterable<Reading>): void {
    this.#families.push({
      description: { name, type, labels, help },
      lines: () => {
        let text = '';
        for (const [values, value] of read()) text += `${name}${braces(labelsText(labels, values))} ${number(value)}\n`;
        return text;
      },
    });
  }
}

/** The children of one metric by their label values. */
class Series<Child> {
  readonly #labels: readonly string[];
  readonly #make: () => Child;
  readonly #children = new Map<string, { readonly label: string; readonly child: Child }>();

  constructor(labels: readonly string[], make: () => Child) {
    this.#labels = labels;
    this.#make = make;
  }

  at(values: readonly string[]): Child {
    const key = values.join('\u0000');
    const known = this.#children.get(key);
    if (known !== undefined) return known.child;
    if (values.length !== this.#labels.length)
      throw new Error(`a metric with the labels ${this.#labels.join()} got ${values.length} values`);
    if (this.#children.size >= seriesMax && values.some((value) => value !== 'other'))
      return this.at(this.#labels.map(() => 'other'));
    const child = this.#make();
    this.#children.set(key, { label: labelsText(this.#labels, values), child });
    return child;
  }

  print(line: (label: string, child: Child) => string): string {
    let text = '';
    for (const { label, child } of this.#children.values()) text += line(label, child);
    return text;
  }
}

class Buckets implements Histogram {
  readonly #bounds: readonly number[];
  readonly #counts: number[];
  #sum = 0;

  constructor(bounds: readonly number[]) {
    this.#bounds = bounds;
    this.#counts = new Array<number>(bounds.length + 1).fill(0);
  }

  observe(value: number): void {
    const bounds = this.#bounds;
    let index = 0;
    while (index < bounds.length && value > bounds[index]!) index++;
    this.#counts[index]!++;
    this.#sum += value;
  }

  print(name: string, label: string): string {
    const separator = label === '' ? '' : ',';
    let text = '';
    let count = 0;
    this.#counts.forEach((inBucket, index) => {
      count += inBucket;
      const bound = this.#bounds[index];
      text += `${name}_bucket{${label}${separator}le="${bound === undefined ? '+Inf' : number(bound)}"} ${count}\n`;
    });
    return `${text}${name}_sum${braces(label)} ${number(this.#sum)}\n${name}_count${braces(label)} ${count}\n`;
  }
}

const braces = (label: string): string => (label === '' ? '' : `{${label}}`);

const labelsText = (labels: readonly string[], values: readonly string[]): string =>
  labels.map((label, index) => `${label}="${escapedLabel(values[index] ?? '')}"`).join(',');

const escapedLabel = (text: string): string =>
  text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n').replaceAll('"', '\\"');

const escapedHelp = (text: string): string => text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n');

function number(value: number): string {
  if (value === Infinity) return '+Inf';
  if (value === -Infinity) return '-Inf';
  return String(value);
}
