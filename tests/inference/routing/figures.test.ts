import assert from 'node:assert/strict';
import fc from 'fast-check';
import { test } from 'node:test';
import { FleetFigures } from '../../../src/inference/routing/choose.ts';
import { idleLoad, type BackendLoad } from '../../../src/inference/routing/backend-load.ts';
import { Fleet, type Placement } from '../../../src/inference/routing/fleet.ts';

/** What is read when a backend is chosen is what is known of it, whatever happened before. */
const prefixesOf = (conversation: number) => ({
  hashes: [10 * conversation, 10 * conversation + 1],
  tokens: [400, 900],
});

const anyMember = fc.nat(4);
const step = fc.oneof(
  fc.record({ type: fc.constant('place' as const), conversation: fc.nat(5), isOld: fc.boolean() }),
  fc.record({
    type: fc.constantFrom('begun' as const, 'end' as const, 'answered' as const, 'abandoned' as const),
    which: fc.nat(),
  }),
  fc.record({ type: fc.constant('sent' as const), member: anyMember, conversation: fc.nat(5) }),
  fc.record({ type: fc.constant('elsewhere' as const), member: anyMember, running: fc.nat(3), tokens: fc.nat(900) }),
  fc.record({ type: fc.constant('foreign' as const), member: anyMember, running: fc.nat(3), tokens: fc.nat(900) }),
  fc.record({ type: fc.constant('sized' as const), member: anyMember, tokens: fc.nat(2_000) }),
  fc.record({
    type: fc.constant('measured' as const),
    member: anyMember,
    speed: fc.integer({ min: 100, max: 20_000 }),
  }),
  fc.record({ type: fc.constant('become' as const), members: fc.subarray([0, 1, 2, 3, 4], { minLength: 1 }) }),
  fc.record({ type: fc.constant('replace' as const), members: fc.subarray([0, 1, 2, 3, 4], { minLength: 1 }) }),
);

test('the figures of each backend follow all that changes it, in one fleet and in that which takes its place', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const all = Array.from({ length: 5 }, () => idleLoad({ concurrencyMax: 3 }));
      let fleet = new Fleet<BackendLoad>(all);
      let old = fleet;
      let nowMs = 0;
      const placements: { readonly placement: Placement<BackendLoad>; hasEnded: boolean }[] = [];
      for (const taken of steps) {
        nowMs += 100;
        switch (taken.type) {
          case 'place': {
            const request = { promptTokens: 1_000, prefixes: () => prefixesOf(taken.conversation) };
            const placement = (taken.isOld ? old : fleet).place(request, () => true, nowMs);
            if (placement !== undefined) placements.push({ placement, hasEnded: false });
            break;
          }
          case 'sent':
            fleet.sentElsewhere(all[taken.member]!, prefixesOf(taken.conversation));
            break;
          case 'elsewhere':
            fleet.loadedElsewhere(all[taken.member]!, taken.running, taken.tokens, taken.running);
            break;
          case 'foreign':
            fleet.loadedByOthers(all[taken.member]!, taken.running, taken.tokens);
            break;
          case 'sized':
            fleet.sized(all[taken.member]!, taken.tokens);
            break;
          case 'measured':
            fleet.measuredElsewhere(all[taken.member]!, taken.speed, nowMs);
            break;
          case 'become':
            fleet.become(taken.members.map((index) => all[index]!));
            break;
          case 'replace':
            old = fleet;
            fleet = new Fleet<BackendLoad>(
              taken.members.map((index) => all[index]!),
              old,
            );
            break;
          case 'begun':
          case 'end':
          case 'answered':
          case 'abandoned': {
            const running = placements.filter(({ hasEnded }) => !hasEnded);
            const one = running[taken.which % Math.max(1, running.length)];
            if (one === undefined) break;
            if (taken.type === 'begun') one.placement.begun(nowMs);
            if (taken.type === 'answered') one.placement.answered({ cachedTokens: 0 });
            if (taken.type === 'abandoned') one.placement.abandoned(nowMs, false);
            if (taken.type !== 'end') break;
            one.placement.end(nowMs);
            one.hasEnded = true;
          }
        }
        for (const member of fleet.members) {
          if (fleet.members.length === 1) continue;
          const { figures, index } = member.row ?? assert.fail('it has no figures');
          assert.equal(fleet.members[index], member);
          const expected = new FleetFigures(1);
          expected.note(0, member);
          for (const [name, column] of Object.entries(expected))
            assert.equal(
              figures[name as keyof FleetFigures & string][index as never],
              column[0],
              `${taken.type}: ${name}`,
            );
        }
      }
      const requests = placements.filter(({ hasEnded }) => !hasEnded).length;
      assert.equal(
        all.reduce((sum, { running }) => sum + running, 0),
        requests,
      );
    }),
    { numRuns: 300 },
  );
});

test('a fleet whose place was taken chooses by what runs now', () => {
  const all = [idleLoad(), idleLoad()];
  const old = new Fleet<BackendLoad>(all);
  const fleet = new Fleet<BackendLoad>(all, old);
  const request = { promptTokens: 1_000, prefixes: () => ({ hashes: [], tokens: [] }) };
  const first = fleet.place(request, () => true, 0)!;
  const second = old.place(request, () => true, 0)!;
  const third = fleet.place(request, () => true, 0)!;
  const fourth = old.place(request, () => true, 0)!;
  assert.notEqual(first.backend, second.backend);
  assert.notEqual(third.backend, fourth.backend);
});
