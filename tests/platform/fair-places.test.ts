import assert from 'node:assert/strict';
import { setMaxListeners } from 'node:events';
import { test } from 'node:test';
import fc from 'fast-check';

import { FairPlaces, FairPlacesOf } from '../../src/platform/fair-places.ts';
import type { FairPlacesOptions } from '../../src/platform/fair-places.ts';

const { signal } = new AbortController();
setMaxListeners(0, signal);
const full = new Error('full');
const placesOf = (options: Partial<FairPlacesOptions> = {}): FairPlaces =>
  new FairPlaces({
    placesMax: 2,
    perAccountMax: 1,
    waitingMax: 100,
    waitMsMax: 60_000,
    refusal: () => full,
    ...options,
  });
/** After everything that can happen without a timer. */
const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test('one account never has all places: whoever comes next enters at once', async () => {
  const places = placesOf({ placesMax: 3, perAccountMax: 2 });
  const entered: string[] = [];
  const enter = async (account: string) => {
    const leave = await places.enter(account, signal);
    entered.push(account);
    return leave;
  };
  const greedy = Array.from({ length: 5 }, () => enter('greedy'));
  await settled();
  assert.deepEqual(entered, ['greedy', 'greedy']);
  const leave = await enter('other');
  assert.deepEqual([places.waiting, places.begun], [3, 3]);
  leave();
  await settled();
  assert.equal(places.waiting, 3, 'the place of the other stays free for the next other');
  for (const one of greedy) (await one)();
  assert.ok(places.isIdle);
});

test('accounts take turns: a newcomer waits for one piece of work, however much the others want', async () => {
  const places = placesOf({ placesMax: 1 });
  const order: string[] = [];
  const work = (account: string): Promise<void> =>
    places.hold(account, signal, async () => {
      order.push(account);
      await settled();
    });
  const all = Array.from({ length: 20 }, () => work('a'));
  all.push(work('b'), work('c'), work('b'));
  await Promise.all(all);
  assert.deepEqual(order.slice(0, 6), ['a', 'a', 'b', 'c', 'a', 'b']);
  assert.equal(order.length, 23);
});

test('too much that waits is refused, and so is what waits too long; another account still finds room', async () => {
  const places = placesOf({ placesMax: 1, waitingMax: 4, waitMsMax: 50 });
  const leave = await places.enter('a', signal);
  const waiting = Array.from({ length: 3 }, () => places.enter('a', signal).catch((error: unknown) => error));
  assert.equal(await waiting[2], full, 'half of the room is for one account');
  const other = places.enter('b', signal).catch((error: unknown) => error);
  assert.equal(places.waiting, 3);
  assert.deepEqual(await Promise.all([...waiting, other]), [full, full, full, full], 'the wait is over');
  assert.deepEqual([places.waiting, places.refused], [0, 4]);
  leave();
  assert.throws(leave, /once/);
  assert.ok(places.isIdle);
});

test('whoever leaves while it waits takes no place and no turn', async () => {
  const places = placesOf({ placesMax: 1 });
  const leave = await places.enter('a', signal);
  const leaving = new AbortController();
  const gone = places.enter('b', leaving.signal).catch((error: unknown) => error);
  const stays = places.enter('c', signal);
  leaving.abort('client-left');
  assert.equal(await gone, 'client-left');
  leave();
  (await stays)();
  await assert.rejects(places.enter('b', leaving.signal), (reason) => reason === 'client-left');
  assert.ok(places.isIdle);
});

test('each of many things has places of its own, which are counted together', async () => {
  const places = new FairPlacesOf<string>({
    placesMax: 1,
    perAccountMax: 1,
    waitingMax: 2,
    waitMsMax: 60_000,
    refusal: () => full,
  });
  const ends: (() => void)[] = [];
  const work = (): Promise<void> => new Promise((resolve) => void ends.push(resolve));
  const all = ['x', 'x', 'y'].map((key) => places.hold(key, 'a', signal, work));
  await settled();
  assert.deepEqual([places.begun, places.waiting, ends.length], [2, 1, 2]);
  await assert.rejects(places.hold('x', 'a', signal, work), full);
  assert.equal(places.refused, 1);
  while (ends.length > 0) {
    ends.pop()!();
    await settled();
  }
  await Promise.all(all);
  assert.deepEqual([places.begun, places.waiting], [3, 0]);
});

test('a place comes back whatever the work does', async () => {
  const places = placesOf();
  await assert.rejects(
    places.hold('a', signal, () => Promise.reject(full)),
    full,
  );
  assert.ok(places.isIdle);
});

test('whatever comes, waits, works and leaves: bounds hold, no turn is skipped, and everything is given back', async () => {
  const step = fc.record({ account: fc.nat(4), does: fc.constantFrom('come', 'end', 'leave'), which: fc.nat(9) });
  await fc.assert(
    fc.asyncProperty(
      fc.array(step, { maxLength: 80 }),
      fc.integer({ min: 1, max: 4 }),
      fc.integer({ min: 1, max: 4 }),
      async (steps, placesMax, ownMax) => {
        const perAccountMax = Math.min(ownMax, placesMax);
        const places = placesOf({ placesMax, perAccountMax, waitingMax: 12 });
        const inside: { readonly account: string; readonly leave: () => void }[] = [];
        const waiting = new Set<{ readonly account: string; readonly leaving: AbortController }>();
        const ends: Promise<unknown>[] = [];
        for (const { account: number, does, which } of steps) {
          const account = String(number);
          if (does === 'come') {
            const one = { account, leaving: new AbortController() };
            waiting.add(one);
            const entering = places.enter(account, one.leaving.signal).then(
              (leave) => {
                waiting.delete(one);
                inside.push({ account, leave });
              },
              () => void waiting.delete(one),
            );
            ends.push(entering);
          } else if (does === 'end') inside.splice(which % Math.max(1, inside.length), 1)[0]?.leave();
          else [...waiting][which]?.leaving.abort('client-left');
          await settled();
          const own = (of: string): number => inside.filter((one) => one.account === of).length;
          assert.ok(inside.length <= placesMax);
          for (const one of inside) assert.ok(own(one.account) <= perAccountMax);
          assert.equal(places.waiting, waiting.size);
          // Nobody waits who could be inside.
          if (inside.length < placesMax) for (const one of waiting) assert.equal(own(one.account), perAccountMax);
        }
        while (inside.length > 0) {
          inside.pop()!.leave();
          await settled();
        }
        await Promise.all(ends);
        assert.ok(places.isIdle);
      },
    ),
    { numRuns: 60 },
  );
});
