/** The exposition format, whatever the figures and label values are. */
import fc from 'fast-check';
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { printFigures } from '../../../src/platform/metrics/figures.ts';
import { Registry } from '../../../src/platform/metrics/registry.ts';
import { parseExposition, total } from './exposition.ts';

test('whatever label values and figures there are, a strict reader finds them again', () => {
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.string({ unit: 'grapheme' }), fc.nat(1_000)), { maxLength: 20 }),
      fc.array(fc.double({ min: 0, max: 20, noNaN: true }), { maxLength: 50 }),
      (counts, observed) => {
        const registry = new Registry();
        const counter = registry.counter('c_total', 'A "help"\nwith \\ everything', ['a']);
        const histogram = registry.histogram('h', 'Help', ['a'], [0.5, 1, 10]);
        const expected = new Map<string, number>();
        for (const [label, value] of counts) {
          counter(label).add(value);
          expected.set(label, (expected.get(label) ?? 0) + value);
        }
        for (const value of observed) histogram('x').observe(value);
        const families = parseExposition(printFigures(registry.figures()));
        for (const [label, value] of expected) assert.equal(total(families, 'c_total', { a: label }), value);
        assert.equal(families.get('c_total')?.samples.length, expected.size);
        if (observed.length === 0) return;
        assert.equal(total(families, 'h_count'), observed.length);
        const below = observed.filter((value) => value <= 1).length;
        assert.equal(families.get('h')?.samples.find(({ labels }) => labels['le'] === '1')?.value, below);
      },
    ),
  );
});

test('the series of a metric are bounded; what comes on top is counted as `other`', () => {
  const registry = new Registry();
  const counter = registry.counter('c_total', 'Help', ['a']);
  for (let index = 0; index < 20_000; index++) counter(`value ${index}`).add(1);
  const { samples } = parseExposition(printFigures(registry.figures())).get('c_total')!;
  assert.ok(samples.length <= 5_001, String(samples.length));
  assert.equal(
    samples.reduce((sum, { value }) => sum + value, 0),
    20_000,
  );
});
