import assert from 'node:assert/strict';
import { totalmem } from 'node:os';
import { test } from 'node:test';

import { heapRoomBytes, memoryLimitBytes, othersBytes, residentBytes } from '../../src/platform/memory.ts';

test('what there is, what this process has of it, and what others have', () => {
  const limit = memoryLimitBytes();
  assert.ok(limit > 0 && limit <= totalmem());
  const resident = residentBytes();
  assert.ok(resident > 10_000_000 && resident < limit);
  assert.ok(othersBytes() >= 0 && othersBytes() <= limit);
  assert.ok(heapRoomBytes() > 0);
});
