import assert from 'node:assert/strict';
import { test } from 'node:test';

import { axisOf } from '../../../web/src/components/axis.ts';

test('what is counted has whole figures at the axis, whatever the largest is; of nothing there is only that', () => {
  for (let largest = 1; largest <= 60; largest++) {
    const { y, ticks } = axisOf([0, largest], [100, 0]);
    assert.ok(ticks.every(Number.isInteger), `${largest}: ${ticks.join(' ')}`);
    assert.ok(ticks.length >= 2 && ticks[0] === 0 && ticks.at(-1)! >= largest, `${largest}: ${ticks.join(' ')}`);
    assert.ok(y(largest) >= 0 && y(0) === 100);
  }
  assert.deepEqual(axisOf([0, 0], [100, 0]).ticks, [0]);
  assert.deepEqual(axisOf([], [100, 0]).ticks, [0]);
  const parts = axisOf([0.25, 1], [100, 0]).ticks.filter((tick) => !Number.isInteger(tick));
  assert.ok(parts.length > 0, 'times and amounts have parts');
});
