import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { idleLoad, type BackendLoad } from '../../../src/inference/routing/backend-load.ts';
import { noFindings } from '../../../src/inference/pipeline/answer-check.ts';
import type { Compared } from '../../../src/inference/routing/backend-quality.ts';
import { excessOf } from '../../../src/inference/routing/comparison.ts';
import { Fleet } from '../../../src/inference/routing/fleet.ts';
import { mulberry32 } from '../../support/random.ts';

const usage = { promptTokens: 1_000, cachedTokens: 0, completionTokens: 100, reasoningTokens: 0 };
const able = (): boolean => true;
const minuteMs = 60_000;

/** A fleet on a clock of its own, whose members fail at random. */
class Scene {
  readonly fleet: Fleet<BackendLoad>;
  readonly changes: { readonly member: number; readonly change: string; readonly minute: number }[] = [];
  readonly random: () => number;
  nowMs = 0;
  #sent = 0;

  constructor(members: number, seed: number) {
    this.random = mulberry32(seed);
    this.fleet = new Fleet(
      Array.from({ length: members }, () => idleLoad()),
      undefined,
      () => {},
      (member, change) => {
        const minute = Math.floor(this.nowMs / minuteMs);
        this.changes.push({ member: this.fleet.members.indexOf(member), change, minute });
      },
    );
  }

  /** Sends requests for a time, evenly spread; returns how many each member got. */
  run(
    minutes: number,
    aSecond: number,
    by: Compared,
    shares: readonly number[],
    account = (): number => Math.floor(this.random() * 40),
  ): readonly number[] {
    const got = shares.map(() => 0);
    const endMs = this.nowMs + minutes * minuteMs;
    for (; this.nowMs < endMs; this.nowMs += 1_000 / aSecond) {
      const first = 10 * ++this.#sent;
      const prompt = { promptTokens: 1_000, prefixes: () => ({ hashes: [first], tokens: [900] }) };
      const placement = this.fleet.place(prompt, able, this.nowMs)!;
      const member = this.fleet.members.indexOf(placement.backend);
      got[member]!++;
      placement.begun(this.nowMs + 100);
      const isBad = this.random() < shares[member]!;
      this.answer(placement.backend, by, isBad, account() % 16, this.#sent);
      placement.answered(usage);
      placement.end(this.nowMs + 500);
    }
    return got;
  }

  answer(backend: BackendLoad, by: Compared, isBad: boolean, group: number, conversation: number): void {
    const { compared } = this.fleet;
    if (by === 'errors' && isBad) return compared.failed(backend, group, conversation, this.nowMs);
    compared.answered(backend, usage, { firstTokenMs: 100, generatedMs: 400 }, group, this.nowMs);
    const found = {
      calls: { calls: 1, callsUnreadable: Number(isBad) },
      forms: { forms: 1, formsMisfit: Number(isBad) },
      errors: {},
    }[by];
    compared.found(backend, { ...noFindings, ...found }, group, conversation, this.nowMs);
  }
}

const share = (got: readonly number[], member: number): number =>
  got[member]! / got.reduce((sum, count) => sum + count, 0);

for (const [name, by, aSecond, shares, isWorse] of [
  ['one of four breaks a tenth of its calls', 'calls', 4, [0, 0, 0.1, 0], [2]],
  ['one of four breaks a tenth, the others a hundredth', 'calls', 8, [0.01, 0.01, 0.13, 0.01], [2]],
  ['one of four breaks a tenth of its forms', 'forms', 4, [0, 0.1, 0, 0], [1]],
  ['one of four fails a tenth of its requests', 'errors', 4, [0, 0.1, 0, 0], [1]],
  ['one of two breaks all of its calls', 'calls', 1, [1, 0], [0]],
  ['one of eight has a wrong parser', 'calls', 8, [0, 0, 0, 0, 0, 0, 0, 0.9], [7]],
  ['two of four break a third', 'calls', 8, [0.33, 0, 0, 0.33], [0, 3]],
  ['all of four break a tenth', 'calls', 8, [0.1, 0.1, 0.1, 0.1], []],
  ['all of two break all', 'calls', 8, [1, 1], []],
  ['one of four breaks hardly more than the others', 'calls', 40, [0.01, 0.01, 0.02, 0.01], []],
] as const satisfies readonly (readonly [string, Compared, number, readonly number[], readonly number[]])[])
  test(`${name}: what is worse is used less within five minutes, and comes back when it is better`, () => {
    for (let seed = 1; seed <= 3; seed++) {
      const scene = new Scene(shares.length, seed);
      const fair = 1 / shares.length;
      scene.run(5, aSecond, by, shares);
      const found = scene.changes.map(({ member, change }) => `${member} ${change}`);
      assert.deepEqual([...found].sort(), isWorse.map((member) => `${member} worse`).sort(), `seed ${seed}`);
      const during = scene.run(5, aSecond, by, shares);
      for (const member of isWorse) {
        assert.ok(share(during, member) < fair / 3, `seed ${seed}: its share is ${share(during, member)}`);
        assert.ok(share(during, member) >= fair / 16, `seed ${seed}: it keeps a share: ${share(during, member)}`);
      }
      assert.equal(scene.changes.length, isWorse.length, `seed ${seed}: nothing changes while it is as it was`);
      const sound = shares.map(() => Math.min(...shares));
      scene.run(15, aSecond, by, sound);
      for (const member of isWorse) {
        const changes = scene.changes.filter((change) => change.member === member).map(({ change }) => change);
        assert.deepEqual(changes, ['worse', 'recovered'], `seed ${seed}`);
      }
      const after = scene.run(5, aSecond, by, sound);
      for (const member of isWorse) assert.ok(share(after, member) > fair * 0.8, `${share(after, member)} of ${fair}`);
      assert.equal(scene.changes.length, 2 * isWorse.length);
    }
  });

test('eight equal backends are never told apart, in 10,000 windows of five minutes', () => {
  const failing = [0.001, 0.01, 0.03, 0.1, 0.3, 0.5, 0.9, 1];
  for (const [index, each] of failing.entries()) {
    const scene = new Scene(8, 100 + index);
    const members = scene.fleet.members;
    for (let at = 0; at < 1_250 * 120; at++) {
      scene.nowMs = at * 2_500;
      const member = members[Math.floor(scene.random() * 8)]!;
      scene.answer(member, 'calls', scene.random() < each, Math.floor(scene.random() * 16), at);
    }
    assert.deepEqual(scene.changes, [], `each fails ${each}`);
  }
});

test('one conversation, one account at one backend, and one crash are no evidence', () => {
  const agent = new Scene(4, 7);
  for (let at = 0; at < 3_600; at++) {
    agent.nowMs = at * 1_000;
    const member = agent.fleet.members[at % 4]!;
    agent.answer(member, 'calls', at % 4 === 0, at % 16, at % 4 === 0 ? 1 : 10 + at);
  }
  assert.deepEqual(agent.changes, [], 'an agent repeats its mistake where its prompt is cached');
  const account = new Scene(4, 8);
  for (let at = 0; at < 3_600; at++) {
    account.nowMs = at * 1_000;
    account.answer(account.fleet.members[at % 4]!, 'calls', at % 4 === 0, at % 4 === 0 ? 0 : 1 + (at % 15), at);
  }
  assert.deepEqual(account.changes, [], 'the tools of an account are odd, and it is always sent to the same backend');
  const crash = new Scene(4, 9);
  crash.run(4, 8, 'errors', [0, 0, 0, 0]);
  for (let running = 0; running < 200; running++)
    crash.answer(crash.fleet.members[0]!, 'errors', true, running % 16, 1e6 + running);
  crash.run(4, 8, 'errors', [0, 0, 0, 0]);
  assert.deepEqual(crash.changes, []);
});

test('a backend that is worse keeps a share wherever prompts are cached, and all of it when its peers are gone', () => {
  const scene = new Scene(2, 5);
  scene.run(5, 4, 'calls', [1, 0]);
  assert.deepEqual(scene.changes.length, 1);
  const [worse, other] = scene.fleet.members as [BackendLoad, BackendLoad];
  // One conversation after another, each cached at the other one, which is idle.
  const prompt = { promptTokens: 1_000, prefixes: () => ({ hashes: [1], tokens: [990] }) };
  const placed = Array.from({ length: 64 }, () => {
    const placement = scene.fleet.place(prompt, able, scene.nowMs)!;
    placement.end(scene.nowMs);
    return placement.backend;
  });
  assert.equal(placed.filter((backend) => backend === worse).length, 4);
  // Where it is the only one that can, it takes the request: it is never a reason to refuse one.
  assert.equal(scene.fleet.place(prompt, (member) => member !== other, scene.nowMs)?.backend, worse);
  scene.fleet.become([worse]);
  scene.nowMs += 10_000;
  scene.answer(worse, 'calls', true, 1, -1);
  assert.equal(worse.quality?.worse, undefined);
  assert.equal(worse.weight, 1);
});

test('the evidence is never more than that of the exact test', () => {
  const count = fc.integer({ min: 1, max: 40 });
  fc.assert(
    fc.property(count, count, fc.nat(40), fc.nat(40), (own, peers, ownBad, peersBad) => {
      const [x, bad] = [Math.min(own, ownBad), Math.min(own, ownBad) + Math.min(peers, peersBad)];
      const found = excessOf(Uint32Array.of(own, x), Uint32Array.of(own + peers, bad));
      if (found === undefined) return;
      let tail = 0;
      for (let k = x; k <= Math.min(own, bad); k++) tail += Math.exp(draws(own, peers, k, bad - k));
      assert.ok(Math.exp(-found.evidence) >= tail * (1 - 1e-9), `${Math.exp(-found.evidence)} < ${tail}`);
    }),
    { numRuns: 2_000 },
  );
});

/** The logarithm of the probability that so many of the failures are among the own answers. */
const draws = (own: number, peers: number, ownBad: number, peersBad: number): number =>
  ways(own, ownBad) + ways(peers, peersBad) - ways(own + peers, ownBad + peersBad);

function ways(of: number, chosen: number): number {
  if (chosen > of || chosen < 0) return -Infinity;
  let sum = 0;
  for (let each = 1; each <= chosen; each++) sum += Math.log(of - chosen + each) - Math.log(each);
  return sum;
}
