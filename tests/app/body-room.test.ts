import assert from 'node:assert/strict';
import { test } from 'node:test';

import { BodyRoom, leastMemoryBytes } from '../../src/app/body-room.ts';
import { largestBody, memoryForBodies } from '../../src/inference/http/body-budget.ts';

const mebibyte = 1_048_576;
const bodyBytesMax = 52_428_800;
const limitsOf = (memoryMebibytes: number | undefined, bodiesInFlightBytesMax?: number) => ({
  bodyBytesMax,
  memoryBytesMax: memoryMebibytes === undefined ? undefined : memoryMebibytes * mebibyte,
  bodiesInFlightBytesMax,
});

test('the room grows with the memory, from a body of 1 MB to bodies of 256 MB, and never beyond what is usable', () => {
  const room = new BodyRoom(1);
  const sizes = [1, 64, 128, 256, 384, 512, 768, 1_024, 4_096, 1_000_000];
  const rooms = sizes.map((size) => room.bytes(limitsOf(size)));
  assert.deepEqual(
    rooms,
    rooms.toSorted((a, b) => a - b),
  );
  assert.equal(largestBody(rooms[0]!), mebibyte);
  assert.ok(rooms.at(-1)! <= memoryForBodies(268_435_456));
  for (const [index, size] of sizes.entries())
    assert.ok(rooms[index] === rooms[0] || rooms[index]! < 0.8 * size * mebibyte, `${size}: ${rooms[index]}`);
});

test('workers share the memory of the machine', () => {
  assert.ok(new BodyRoom(64).bytesAtStart(limitsOf(undefined)) <= new BodyRoom(1).bytesAtStart(limitsOf(undefined)));
});

test("the operator's figure is taken as it is", () => {
  const room = new BodyRoom(1);
  for (const figure of [2_048, 100_000_000, 1_000_000_000_000]) {
    assert.equal(largestBody(room.bytes(limitsOf(300, figure))), figure);
    assert.equal(largestBody(room.bytesAtStart(limitsOf(300, figure))), figure);
  }
});

test('the operator is told what does not fit', () => {
  const room = new BodyRoom(1);
  assert.equal(room.lack({ ...limitsOf(undefined), bodyBytesMax: 1_024 }), undefined);
  const small = room.lack(limitsOf(leastMemoryBytes / mebibyte - 1));
  assert.equal(small?.level, 'warn');
  // It serves, and refuses the largest bodies.
  assert.equal(room.lack(limitsOf(300))?.level, 'info');
  const overstated = room.lack(limitsOf(300, 1_000_000_000));
  assert.equal(overstated?.level, 'warn');
  assert.equal(overstated.detail?.['bodies_in_flight_bytes_max'], 1_000_000_000);
  assert.ok((overstated.detail['bodies_fitting_bytes'] as number) < bodyBytesMax);
});
