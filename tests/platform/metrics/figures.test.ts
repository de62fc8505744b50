import assert from 'node:assert/strict';
import { test } from 'node:test';
import { figureOf, sumOfFigures, type FamilyFigures } from '../../../src/platform/metrics/figures.ts';

test('a figure is found by its labels, and summed over the last of them', () => {
  const description = { name: 'waiting', help: '', type: 'gauge', labels: ['model', 'tier'], across: 'sum' } as const;
  const families: readonly FamilyFigures[] = [
    {
      description,
      series: [
        ['model="a",tier="default"', 2],
        ['model="a",tier="flex"', 3],
        ['model="ab",tier="flex"', 5],
      ],
    },
  ];
  assert.equal(figureOf(families, 'waiting', 'a', 'flex'), 3);
  assert.equal(figureOf(families, 'waiting', 'a'), undefined);
  assert.equal(sumOfFigures(families, 'waiting', 'a'), 5);
  assert.equal(sumOfFigures(families, 'waiting', 'b'), 0);
});
