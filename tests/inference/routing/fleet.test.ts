import assert from 'node:assert/strict';
import { test } from 'node:test';
import { idleLoad, type BackendLoad } from '../../../src/inference/routing/backend-load.ts';
import { Fleet, type Placement } from '../../../src/inference/routing/fleet.ts';
import { fellSilent, spoke } from '../../../src/inference/routing/health.ts';
import { policies } from '../../../bench/simulate/policies.ts';
import { runFleet, type FleetShape } from '../../../bench/simulate/run-fleet.ts';
import { faster, generateTrace } from '../../../bench/simulate/trace.ts';

const able = (): boolean => true;
const request = (first: number, promptTokens = 1_000) => ({
  promptTokens,
  prefixes: () => ({ hashes: [first, first + 1], tokens: [400, 900] }),
});

test('a conversation stays where it was, and leaves when too much waits there', () => {
  const fleet = new Fleet([idleLoad(), idleLoad()]);
  const first = fleet.place(request(10), able, 0)!;
  first.begun(250);
  first.end(250);
  for (let turn = 0; turn < 5; turn++) {
    const next = fleet.place(request(10), able, 1_000)!;
    assert.equal(next.backend, first.backend);
    assert.equal(next.reasons?.cachedTokens, 900);
    next.end(1_000);
  }
  // Others, of 1,000 tokens each, all at once: they share the two.
  const others = Array.from({ length: 8 }, (_, index) => fleet.place(request(100 * (index + 1)), able, 2_000)!);
  assert.equal(others.filter(({ backend }) => backend === first.backend).length, 4);
  for (const other of others) other.end(2_000);
  assert.ok(fleet.members.every(({ running, waitingTokens }) => running === 0 && waitingTokens === 0));
});

test('where another backend has more of the prompt in its cache, a placement says which, with its figures, and why it was not chosen', () => {
  const fleet = new Fleet([idleLoad(), idleLoad()]);
  const [holder, other] = fleet.members as [BackendLoad, BackendLoad];
  const isHolder = (each: BackendLoad): boolean => each === holder;
  const first = fleet.place(request(10), isHolder, 0)!;
  assert.equal(first.elsewhere, undefined, 'nobody has it');
  first.begun(250);
  first.end(250);
  const again = fleet.place(request(10), able, 1_000)!;
  assert.deepEqual([again.backend, again.elsewhere], [holder, undefined], 'nobody has more');
  again.end(1_000);
  const refused = fleet.place(request(20), (each) => each === other, 1_000)!;
  assert.equal(refused.elsewhere, undefined, 'another prompt');
  refused.end(1_000);
  const kept = fleet.place({ promptTokens: 1_000, prefixes: request(10).prefixes }, (each) => each === other, 1_000)!;
  assert.deepEqual(
    [kept.elsewhere?.backend, kept.elsewhere?.state, kept.elsewhere?.reasons.cachedTokens, kept.reasons?.cachedTokens],
    [holder, 'unavailable', 900, 0],
  );
  kept.end(1_000);
  // Much waits at the holder of another one.
  fleet.place(request(30), isHolder, 2_000)!.end(2_000);
  for (let count = 0; count < 8; count++) fleet.place(request(100 * (count + 1)), isHolder, 2_000);
  const slower = fleet.place(request(30), able, 2_000)!;
  assert.deepEqual([slower.backend, slower.elsewhere?.backend, slower.elsewhere?.state], [other, holder, 'slower']);
  assert.ok(slower.elsewhere!.reasons.expectedMs > slower.reasons!.expectedMs);
});

test('a backend that reports less than it was believed to have is believed to have lost what is older', () => {
  const fleet = new Fleet([idleLoad(), idleLoad()]);
  const only = fleet.members[0]!;
  const at = (first: number, cachedTokens: number) => {
    const placement = fleet.place(request(first), (member) => member === only, 0)!;
    placement.answered({ cachedTokens });
    placement.end(0);
    return placement.reasons!.cachedTokens;
  };
  assert.deepEqual([at(10, 0), at(20, 0), at(20, 0)], [0, 0, 900], 'one that reports nothing keeps what it was sent');
  assert.deepEqual([at(10, 900), at(20, 900)], [900, 900]);
  assert.deepEqual([at(20, 0), at(10, 0)], [900, 0], 'it was started anew');
  assert.deepEqual([only.cachedTokensExpected, only.cachedTokensFound], [3_600, 1_800]);
});

/** Sends one prompt after another to each member, with its time to the first token, and tells how many of 12 at once then go to each. */
function sharesAfter(fleet: Fleet<BackendLoad>, rounds: number, elapsedMs: (member: number, round: number) => number) {
  const fresh = freshRequests();
  let nowMs = 0;
  for (let round = 0; round < rounds; round++, nowMs += 5_000)
    for (const [index, member] of fleet.members.entries()) {
      const placement = fleet.place(fresh(), (each) => each === member, nowMs)!;
      placement.begun(nowMs + elapsedMs(index, round));
      placement.end(nowMs + elapsedMs(index, round));
    }
  return sharesNow(fleet, 12, nowMs, fresh);
}

function sharesNow(fleet: Fleet<BackendLoad>, count: number, nowMs: number, fresh = freshRequests()) {
  const placed = Array.from({ length: count }, () => fleet.place(fresh(), able, nowMs)!);
  for (const each of placed) each.end(nowMs);
  return fleet.members.map((member) => placed.filter(({ backend }) => backend === member).length);
}

/** Prompts that have nothing in common. */
function freshRequests(from = 0) {
  let first = from;
  return () => request((first += 10));
}

test('a backend that is measured to be slower by half gets less', () => {
  for (const rounds of [4, 40]) {
    const fleet = new Fleet([idleLoad(), idleLoad()]);
    const [, slow] = sharesAfter(fleet, rounds, (member) => (member === 0 ? 100 : 400)) as [number, number];
    assert.ok(slow >= 1 && slow <= 4, `${slow} after ${rounds} of each`);
  }
});

test('one slow beginning, or a pause, leaves a backend its share', () => {
  for (const slowRound of [0, 20]) {
    const fleet = new Fleet([idleLoad(), idleLoad(), idleLoad()]);
    const shares = sharesAfter(fleet, slowRound + 1, (member, round) =>
      member === 0 && round === slowRound ? 4_900 : 100,
    );
    assert.deepEqual(shares, [4, 4, 4], `slow in round ${slowRound}`);
  }
  const fleet = new Fleet([idleLoad(), idleLoad(), idleLoad()]);
  sharesAfter(fleet, 20, () => 100);
  const fresh = freshRequests();
  const paused = Array.from({ length: 30 }, () => fleet.place(fresh(), (each) => each === fleet.members[1], 200_000)!);
  for (const each of paused) {
    each.begun(202_500);
    each.end(202_500);
  }
  assert.deepEqual(sharesNow(fleet, 12, 203_000), [4, 4, 4], 'thirty requests met the same pause');
});

test('a backend that comes back is as fast as the others, whatever it was before and however slow its first answer is', () => {
  const failTimes = (
    fleet: Fleet<BackendLoad>,
    member: BackendLoad,
    end: (at: Placement<BackendLoad>) => void,
  ): void => {
    for (let count = 0; count < 3; count++) {
      const placement = fleet.place(request(count), (each) => each === member, 50_000)!;
      end(placement);
      placement.end(50_000);
    }
  };
  const outages: Readonly<Record<string, (fleet: Fleet<BackendLoad>, member: BackendLoad) => void>> = {
    'it failed': (fleet, member) => failTimes(fleet, member, (placement) => placement.failed(50_000)),
    'it was overtaken': (fleet, member) => failTimes(fleet, member, (placement) => placement.abandoned(50_000, true)),
    'it refused': (fleet, member) => failTimes(fleet, member, (placement) => placement.refused()),
    'it fell silent': (fleet, member) => {
      assert.ok(fellSilent(member, 50_000));
      fleet.leftOut(member, 50_000);
      spoke(member, 51_000);
    },
    'another process left it out': (fleet, member) => fleet.ejectedElsewhere(member, 1_000, 50_000),
  };
  for (const [name, goOut] of Object.entries(outages)) {
    const fleet = new Fleet([idleLoad(), idleLoad()]);
    const [member, other] = fleet.members as [BackendLoad, BackendLoad];
    sharesAfter(fleet, 10, () => 1_000);
    goOut(fleet, member);
    const fresh = freshRequests(10_000);
    const answer = (nowMs: number, elapsedMs: number, mayTake: (each: BackendLoad) => boolean = able): BackendLoad => {
      const placement = fleet.place(fresh(), mayTake, nowMs)!;
      placement.begun(nowMs + elapsedMs);
      placement.answered({ cachedTokens: 0 });
      placement.end(nowMs + elapsedMs);
      return placement.backend;
    };
    // The other one is four times as fast meanwhile, by what is measured.
    for (let round = 0; round < 40; round++) answer(51_000 + 1_000 * round, 250, (each) => each === other);
    const busy = fleet.place(fresh(), (each) => each === other, 100_000)!;
    assert.equal(answer(100_000, 4_000), member, `${name}: the first request goes to the one that is idle`);
    busy.end(104_000);
    assert.deepEqual(sharesNow(fleet, 12, 105_000, fresh), [6, 6], name);
  }
});

test('what others have measured of a backend counts no more while it is left out', () => {
  const fleet = new Fleet([idleLoad(), idleLoad()]);
  const [member] = fleet.members as [BackendLoad];
  sharesAfter(fleet, 10, () => 250);
  fleet.ejectedElsewhere(member, 1_000, 50_000);
  fleet.measuredElsewhere(member, 1_000, 50_100);
  const probe = fleet.place(request(1), (each) => each === member, 52_000)!;
  probe.answered({ cachedTokens: 0 });
  probe.end(52_000);
  assert.deepEqual(sharesNow(fleet, 12, 53_000, freshRequests(10_000)), [6, 6]);
});

const shape: FleetShape = { servers: 8, cacheBlocks: 500, tokensPerSecond: 8_000 };
const trace = generateTrace({ seconds: 200, conversationsPerSecond: 0.7, applications: 32, seed: 1 });
const playedBy = (policy: string, load: number, more: Partial<FleetShape> = {}) =>
  runFleet(faster(trace, load), { ...shape, ...more }, policies[policy]!);

test('in a simulated fleet it keeps the caches and has the shortest tail, under light and heavy load', () => {
  for (const load of [1, 4]) {
    const ours = playedBy('least expected first token', load);
    assert.ok(ours.hitRate > 2 * playedBy('round robin', load).hitRate, `${load}: ${ours.hitRate} cached`);
    for (const other of ['round robin', 'least connections', 'consistent hashing', 'bounded hashing, 1.25']) {
      const { p99 } = playedBy(other, load);
      assert.ok(ours.p99 < p99, `${load} × the load: p99 of ${ours.p99} s, ${other} has ${p99} s`);
    }
  }
});

test('one beginning that everybody asks for spreads as soon as one server is too few', () => {
  const herd = trace.map((each) => ({
    ...each,
    blocks: each.blocks.map((block, index) => (index < 20 ? index : block)),
  }));
  const p99Of = (policy: string): number =>
    runFleet(faster(herd, 4), { ...shape, tokensPerSecond: 1_000 }, policies[policy]!).p99;
  assert.ok(p99Of('least expected first token') < p99Of('consistent hashing') / 2);
});

test('a server at a quarter of the speed gets a quarter of the work, about', () => {
  const { p99 } = playedBy('least expected first token', 1, { speeds: { 0: 0.25 } });
  assert.ok(p99 < playedBy('least connections', 1, { speeds: { 0: 0.25 } }).p99);
});

test('what waited at a server that ends is answered by others, and it is used again when it is back', () => {
  const outages = [{ server: 0, fromMs: 15_000, toMs: 22_000 }];
  const ours = playedBy('least expected first token', 4, { outages });
  assert.equal(ours.failed, 0);
  assert.ok(ours.comeback < 5, String(ours.comeback));
});
