/**
 * Counters, gauges and histograms. Label values are our own: names from the configuration and from closed tables, never chosen by a
 * client (reliability §4).
 */
import { labelsText } from './figures.ts';
import type { BucketFigures, Description, FamilyFigures, SeriesFigures } from './figures.ts';

export interface Counter {
  /** Integers above 2^53 lose their last digits, as in Prometheus itself. */
  add(value: number): void;
}

export interface Histogram {
  /** Costs 0.04 µs: it may be called for every chunk. */
  observe(value: number): void;
}

/** Value of a metric for one combination of labels. */
export type Reading = readonly [labels: readonly string[], value: SeriesFigures[1]];

interface Family {
  readonly description: Description;
  series(): readonly SeriesFigures[];
}

/** Maximum label combinations of one metric; further ones are counted together as `other`. */
const seriesMax = 5_000;

export class Registry {
  readonly #families: Family[] = [];

  get descriptions(): readonly Description[] {
    return this.#families.map(({ description }) => description);
  }

  /** Returns a function that finds the counter of some label values, in the order of `labels`. */
  counter(name: string, help: string, labels: readonly string[] = []): (...values: readonly string[]) => Counter {
    const series = new Series(labels, () => ({
      sum: 0,
      add(value: number) {
        this.sum += value;
      },
    }));
    if (labels.length === 0) series.at([]);
    this.#families.push({
      description: { name, type: 'counter', labels, help, across: 'sum' },
      series: () => series.figures(({ sum }) => sum),
    });
    return (...values) => series.at(values);
  }

  /** A figure that is stored elsewhere and read on each scrape: one, or one for each combination of labels. */
  reading(description: Description, read: () => number | readonly Reading[]): void {
    const { labels } = description;
    const readings = (figure: number | readonly Reading[]): readonly Reading[] =>
      typeof figure === 'number' ? [[[], figure]] : figure;
    this.#families.push({
      description,
      series: () => readings(read()).map(([values, value]) => [labelsText(labels, values), value] as const),
    });
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
      description: { name, type: 'histogram', labels, help, across: 'sum' },
      series: () => series.figures((buckets) => buckets.figures()),
    });
    return (...values) => series.at(values);
  }

  figures(): readonly FamilyFigures[] {
    return this.#families.map(({ description, series }) => ({ description, series: series() }));
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

  figures(of: (child: Child) => SeriesFigures[1]): readonly SeriesFigures[] {
    return [...this.#children.values()].map(({ label, child }) => [label, of(child)] as const);
  }
}

/** The counts of one histogram. */
export class Buckets implements Histogram {
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

  figures(): BucketFigures {
    return { bounds: this.#bounds, counts: [...this.#counts], sum: this.#sum };
  }
}
