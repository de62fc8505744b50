/** A strict reader of the Prometheus exposition format 0.0.4: what it does not know is an error. */
import assert from 'node:assert/strict';

export interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

export interface Family {
  readonly name: string;
  readonly type: string;
  readonly help: string;
  readonly samples: readonly Sample[];
}

/** Families by name. Throws on anything that a scraper might refuse. */
export function parseExposition(text: string): ReadonlyMap<string, Family> {
  assert.ok(text.endsWith('\n'), 'the last line ends');
  const families = new Map<string, { name: string; type: string; help: string; samples: Sample[] }>();
  const series = new Set<string>();
  let current: { name: string; type: string; help: string; samples: Sample[] } | undefined;
  for (const line of text.split('\n').slice(0, -1)) {
    const help = /^# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+)$/.exec(line);
    if (help !== null) {
      assert.ok(!families.has(help[1]!), `${help[1]} has two groups`);
      current = { name: help[1]!, type: '', help: help[2]!, samples: [] };
      families.set(current.name, current);
      continue;
    }
    const type = /^# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge|histogram)$/.exec(line);
    if (type !== null) {
      assert.equal(type[1], current?.name, 'TYPE follows its HELP');
      assert.equal(current?.samples.length, 0);
      assert.equal(current?.type, '');
      current!.type = type[2]!;
      continue;
    }
    const sample = readSample(line);
    assert.ok(current !== undefined && current.type !== '', line);
    const base = current.type === 'histogram' ? sample.name.replace(/_(bucket|sum|count)$/, '') : sample.name;
    assert.equal(base, current.name, `${line} stands in the group of ${current.name}`);
    const key = `${sample.name} ${JSON.stringify(Object.entries(sample.labels).toSorted())}`;
    assert.ok(!series.has(key), `twice: ${key}`);
    series.add(key);
    if (current.type === 'counter') assert.ok(sample.value >= 0, line);
    current.samples.push(sample);
  }
  for (const family of families.values()) if (family.type === 'histogram') checkHistogram(family);
  return families;
}

function readSample(line: string): Sample {
  const match = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? ([^ ]+)$/s.exec(line);
  assert.ok(match, `no sample: ${line}`);
  const labels: Record<string, string> = {};
  let rest = match[2] ?? '';
  while (rest !== '') {
    const label = /^([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\["\\n])*)"(,(?=[a-zA-Z_])|$)/.exec(rest);
    assert.ok(label, `no label: ${rest}`);
    assert.ok(!Object.hasOwn(labels, label[1]!), `label twice: ${line}`);
    labels[label[1]!] = label[2]!.replaceAll(/\\(.)/g, (_, escaped: string) => (escaped === 'n' ? '\n' : escaped));
    rest = rest.slice(label[0].length);
  }
  const text = match[3]!;
  const value = text === '+Inf' ? Infinity : text === '-Inf' ? -Infinity : Number(text);
  assert.ok(!Number.isNaN(value) && text !== '', `no number: ${line}`);
  return { name: match[1]!, labels, value };
}

/** Buckets grow, end in +Inf, and agree with the count. */
function checkHistogram({ name, samples }: Family): void {
  const groups = new Map<string, Sample[]>();
  for (const sample of samples) {
    const { le: _, ...labels } = sample.labels;
    const key = JSON.stringify(labels);
    groups.set(key, [...(groups.get(key) ?? []), sample]);
  }
  for (const [key, group] of groups) {
    const buckets = group.filter((sample) => sample.name === `${name}_bucket`);
    const bounds = buckets.map(({ labels }) => (labels['le'] === '+Inf' ? Infinity : Number(labels['le'])));
    assert.deepEqual(
      bounds,
      bounds.toSorted((a, b) => a - b),
      `${name}${key}`,
    );
    assert.equal(bounds.at(-1), Infinity, `${name}${key}`);
    const counts = buckets.map(({ value }) => value);
    assert.deepEqual(
      counts,
      counts.toSorted((a, b) => a - b),
      `${name}${key} is cumulative`,
    );
    assert.equal(group.find((sample) => sample.name === `${name}_count`)?.value, counts.at(-1), `${name}${key}`);
    assert.equal(group.filter((sample) => sample.name === `${name}_sum`).length, 1, `${name}${key}`);
  }
}

/** Sum of the samples that have these labels. */
export function total(
  families: ReadonlyMap<string, Family>,
  name: string,
  labels: Readonly<Record<string, string>> = {},
): number {
  const family = families.get(name.replace(/_(sum|count|bucket)$/, '')) ?? families.get(name);
  assert.ok(family, `there is no ${name}`);
  return family.samples
    .filter((sample) => sample.name === name)
    .filter((sample) => Object.entries(labels).every(([label, value]) => sample.labels[label] === value))
    .reduce((sum, { value }) => sum + value, 0);
}
