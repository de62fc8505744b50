import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { FairQueue } from '../../src/platform/fair-queue.ts';

test('sources are served in turn, each in its own order', () => {
  const queue = new FairQueue<string>(100);
  for (const item of ['a1', 'a2', 'a3', 'a4', 'b1', 'c1', 'c2']) assert.ok(queue.add(item[0]!, item));
  assert.deepEqual(queue.take(4), ['a1', 'b1', 'c1', 'a2']);
  queue.addFirst('b1');
  assert.ok(queue.add('d', 'd1'));
  assert.deepEqual(queue.take(9), ['b1', 'c2', 'a3', 'd1', 'a4']);
  assert.deepEqual([queue.take(9), queue.size], [[], 0]);
});

test('a turn goes to the first source that may have one, and an item may leave out of turn', () => {
  const queue = new FairQueue<string>(100);
  for (const item of ['a1', 'a2', 'b1', 'c1']) queue.add(item[0]!, item);
  assert.equal(
    queue.next((source) => source !== 'a'),
    'b1',
  );
  queue.remove('c', 'c1');
  queue.remove('c', 'c1');
  queue.remove('a', 'a1');
  assert.equal(queue.size, 1);
  assert.equal(
    queue.next((source) => source !== 'a'),
    undefined,
  );
  assert.deepEqual([queue.next(), queue.next(), queue.size], ['a2', undefined, 0]);
});

test('one source gets half of the room, and leaves the other half to others', () => {
  const queue = new FairQueue<number>(100);
  const fill = (source: string): number => {
    let items = 0;
    while (queue.add(source, items)) items++;
    return items;
  };
  assert.deepEqual(['a', 'b', 'c'].map(fill), [50, 25, 13]);
  queue.clear();
  assert.equal(fill('c'), 50);
});

test('it never has more than it may, loses nothing and makes nothing up', () => {
  const steps = fc.array(fc.record({ source: fc.nat(5), takes: fc.nat(3) }), { maxLength: 200 });
  fc.assert(
    fc.property(steps, fc.integer({ min: 1, max: 20 }), (list, most) => {
      const queue = new FairQueue<number>(most);
      const waiting = new Set<number>();
      list.forEach(({ source, takes }, item) => {
        if (queue.add(String(source), item)) waiting.add(item);
        for (const taken of queue.take(takes)) assert.ok(waiting.delete(taken));
        assert.equal(queue.size, waiting.size);
        assert.ok(queue.size <= most);
      });
      for (const taken of queue.take(most)) assert.ok(waiting.delete(taken));
      assert.equal(waiting.size, 0);
    }),
  );
});
