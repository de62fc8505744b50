/** Figures of several processes become one page: added, least, each or the first's, and a strict reader takes it. */
import fc from 'fast-check';
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { countsOf, mergedFigures, printFigures } from '../../../src/platform/metrics/figures.ts';
import type { Across } from '../../../src/platform/metrics/figures.ts';
import { Registry } from '../../../src/platform/metrics/registry.ts';
import { parseExposition, total } from './exposition.ts';

/** What one process has counted. */
interface Counted {
  readonly counts: readonly (readonly [label: string, value: number])[];
  readonly observed: readonly number[];
  readonly gauge: number;
}

const counted = fc.record({
  counts: fc.array(fc.tuple(fc.constantFrom('a', 'b"', 'c\\'), fc.nat(1_000)), { maxLength: 5 }),
  observed: fc.array(fc.constantFrom(0.1, 0.75, 5, 20), { maxLength: 10 }),
  gauge: fc.nat(100),
});

function registryOf({ counts, observed, gauge }: Counted): Registry {
  const registry = new Registry();
  const counter = registry.counter('c_total', 'Help', ['a']);
  for (const [label, value] of counts) counter(label).add(value);
  const histogram = registry.histogram('h', 'Help', [], [0.5, 1, 10]);
  for (const value of observed) histogram().observe(value);
  for (const across of ['sum', 'least', 'each', 'first'] satisfies readonly Across[])
    registry.reading({ name: `g_${across}`, type: 'gauge', help: 'Help', labels: [], across }, () => gauge);
  return registry;
}

test('whatever processes have counted, the page is their sum', () => {
  fc.assert(
    fc.property(fc.array(counted, { minLength: 1, maxLength: 4 }), (processes) => {
      const merged = mergedFigures(
        processes.map((one, index) => ({ process: `p${index}`, families: registryOf(one).figures() })),
      );
      const families = parseExposition(printFigures(merged));
      const sum = (values: readonly number[]): number => values.reduce((all, value) => all + value, 0);
      assert.equal(
        total(families, 'c_total'),
        sum(processes.flatMap(({ counts }) => counts.map(([, value]) => value))),
      );
      const observed = processes.flatMap((one) => one.observed);
      assert.equal(total(families, 'h_count'), observed.length);
      assert.equal(total(families, 'h_bucket', { le: '1' }), observed.filter((value) => value <= 1).length);
      assert.ok(Math.abs(total(families, 'h_sum') - sum(observed)) < 1e-6);
      const gauges = processes.map(({ gauge }) => gauge);
      assert.equal(total(families, 'g_sum'), sum(gauges));
      assert.equal(total(families, 'g_least'), Math.min(...gauges));
      assert.equal(total(families, 'g_first'), gauges[0]);
      gauges.forEach((gauge, index) => assert.equal(total(families, 'g_each', { process: `p${index}` }), gauge));
    }),
  );
});

test('of a process that has ended its counts stay, and nothing else', () => {
  const { length } = countsOf(registryOf({ counts: [['a', 1]], observed: [1], gauge: 7 }).figures());
  assert.equal(length, 2);
});
