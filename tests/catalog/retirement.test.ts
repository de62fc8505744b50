import assert from 'node:assert/strict';
import { test } from 'node:test';

import fc from 'fast-check';

import { Catalog } from '../../src/catalog/catalog.ts';
import { capableModel } from '../inference/pipeline/models.ts';

/** Specification part 3, contracts decision 25: retired at 00:00:00 UTC of the day, by whatever clock is asked. */
const dayMs = 86_400_000;

test('a model is there until the last millisecond before its day, and gone from the first of it', () => {
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 40_000 }), fc.integer({ min: -2 * dayMs, max: 2 * dayMs }), (day, offset) => {
      const retiresAt = day * dayMs;
      const model = { ...capableModel, deprecationDate: new Date(retiresAt).toISOString().slice(0, 10) };
      const catalog = new Catalog([model, { ...capableModel, id: 'other' }]);
      const isThere = offset < 0;
      assert.deepEqual(catalog.find('CAPABLE', retiresAt + offset), { model, isRetired: !isThere });
      const ids = catalog.modelsAt(retiresAt + offset).map(({ id }) => id);
      assert.deepEqual(ids, isThere ? ['capable', 'other'] : ['other']);
    }),
    {
      examples: [
        [20_000, -1],
        [20_000, 0],
        [20_000, 1],
      ],
    },
  );
});

test('a model without a date is never retired', () => {
  const catalog = new Catalog([capableModel]);
  assert.deepEqual(catalog.find('capable', 8.64e15), { model: capableModel, isRetired: false });
  assert.equal(catalog.find('incapable', 0), undefined);
});
