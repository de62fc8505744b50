/** What servers say of themselves: who is asked and when, what of an answer is others', and how long it counts. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { policies } from '../../../bench/simulate/policies.ts';
import { runFleet } from '../../../bench/simulate/run-fleet.ts';
import { faster, generateTrace } from '../../../bench/simulate/trace.ts';
import { cacheTokensUnknown } from '../../../src/inference/routing/cache-index.ts';
import { FleetPeers } from '../../../src/inference/routing/fleet-peers.ts';
import { idleLoad, type BackendLoad } from '../../../src/inference/routing/backend-load.ts';
import { Fleet, type Placement } from '../../../src/inference/routing/fleet.ts';
import { ServerReports, type Question } from '../../../src/inference/routing/server-reports.ts';
import { mulberry32 } from '../../support/random.ts';

type Named = BackendLoad & { readonly label: string };

class Process {
  readonly fleet: Fleet<Named>;
  readonly reports: ServerReports<Named>;
  readonly peers: FleetPeers<Named>;
  #conversation = 0;

  constructor(count = 2, seed = 1) {
    this.fleet = new Fleet<Named>(
      Array.from({ length: count }, (_, index) => ({ ...idleLoad(), label: `s-${index}` })),
    );
    const fleets = new Map([['m', this.fleet]]);
    this.reports = new ServerReports(() => fleets, mulberry32(seed));
    this.peers = new FleetPeers(() => fleets, this.reports);
  }

  /** A prompt of 1,000 tokens that has nothing in common with others. */
  place(nowMs: number, mayTake: (member: Named) => boolean = () => true): Placement<Named> {
    const prefixes = { hashes: [++this.#conversation * 1_000], tokens: [900] };
    return this.fleet.place({ promptTokens: 1_000, prefixes: () => prefixes }, mayTake, nowMs)!;
  }

  due(nowMs: number): readonly Question<Named>[] {
    return this.reports.due(nowMs, () => true, this.peers.count > 0);
  }
}

const report = (running: number, waiting = 0, cacheTokens?: number) => ({ running, waiting, cacheTokens });
const foreign = (process: Process): readonly (readonly [number, number])[] =>
  process.fleet.members.map(({ runningForeign, waitingTokensForeign }) => [runningForeign, waitingTokensForeign]);

test('servers are asked every two seconds while their model is in use, and one at a time', () => {
  const process = new Process();
  assert.deepEqual(process.due(0), [], 'nobody uses the model');
  process.place(100).end(100);
  const first = process.due(250);
  assert.equal(first.length, 2);
  assert.deepEqual(process.due(60_000), [], 'both are being asked');
  process.place(70_000).end(70_000);
  for (const question of first) process.reports.answered(question, report(0), 70_000);
  assert.deepEqual(process.due(71_000), []);
  assert.equal(process.due(72_500).length, 2);
});

test('one that does not tell is left alone for a minute, and so are all of an unused model', () => {
  const process = new Process();
  process.place(0).end(0);
  const [silent, speaking] = process.due(250) as [Question<Named>, Question<Named>];
  process.reports.answered(silent, undefined, 300);
  process.reports.answered(speaking, report(0), 300);
  for (let nowMs = 1_000; nowMs < 60_000; nowMs += 1_000) {
    process.place(nowMs).end(nowMs);
    for (const question of process.due(nowMs)) {
      assert.equal(question.member, speaking.member);
      process.reports.answered(question, report(0), nowMs);
    }
  }
  process.place(80_000).end(80_000);
  assert.equal(process.due(80_000).length, 2);
  assert.deepEqual(process.due(90_000), [], 'unused for five seconds');
});

test('of 1,000 servers a process asks 64 in a second, those first that were asked longest ago', () => {
  const process = new Process(1_000);
  const asked = new Map<string, number>();
  let answers = 0;
  for (let nowMs = 0; nowMs <= 16_500; nowMs += 250) {
    process.place(nowMs).end(nowMs);
    const questions = process.due(nowMs);
    assert.ok(questions.length <= 32);
    for (const question of questions) {
      asked.set(question.member.label, (asked.get(question.member.label) ?? 0) + 1);
      process.reports.answered(question, report(0), nowMs);
      answers++;
    }
  }
  assert.ok(answers <= 64 * 18, `${answers}`);
  assert.equal(asked.size, 1_000, 'each was asked');
  assert.ok([...asked.values()].every((times) => times <= 2));
});

test('what others do there counts where the next request goes, until it is too old', () => {
  const process = new Process();
  process.place(0).end(0);
  const [one, other] = process.due(250) as [Question<Named>, Question<Named>];
  process.reports.answered(one, report(3, 2), 300);
  process.reports.answered(other, report(1), 300);
  assert.deepEqual(foreign(process), [
    [5, 2_000],
    [1, 0],
  ]);
  // Two thousand tokens wait, of which half counts: one more of a thousand goes elsewhere, and one beside it too.
  const placed = [1, 2].map(() => process.place(400));
  assert.ok(placed.every(({ backend }) => backend === other.member));
  assert.deepEqual(placed[0]!.reasons?.foreign, { running: 1, waitingTokens: 0 });
  for (const each of placed) each.end(500);
  process.due(6_000);
  assert.deepEqual(foreign(process)[0], [5, 2_000]);
  process.due(6_400);
  assert.deepEqual(foreign(process), [
    [0, 0],
    [0, 0],
  ]);
});

test('the size of a cache is what its server says, and unknown again when it does not', () => {
  const process = new Process();
  const say = (nowMs: number, cacheTokens: number | undefined): void => {
    process.place(nowMs).end(nowMs);
    for (const question of process.due(nowMs)) process.reports.answered(question, report(0, 0, cacheTokens), nowMs);
  };
  const believed = (): readonly number[] => process.fleet.members.map(({ cacheTokensMax }) => cacheTokensMax);
  say(0, undefined);
  assert.deepEqual(believed(), [cacheTokensUnknown, cacheTokensUnknown]);
  for (let count = 0; count < 9; count++) process.place(0).end(0);
  say(3_000, 2_000);
  assert.deepEqual(believed(), [2_000, 2_000]);
  assert.ok(
    process.fleet.members.every(({ cacheTokens }) => cacheTokens === 1_800),
    'two prompts each',
  );
  say(6_000, 0);
  assert.ok(process.fleet.members.every(({ cacheTokens }) => cacheTokens === 0));
  process.place(6_100).end(6_100);
  assert.ok(
    process.fleet.members.every(({ cacheTokens }) => cacheTokens === 0),
    'it keeps nothing',
  );
  say(9_000, undefined);
  assert.deepEqual(believed(), [cacheTokensUnknown, cacheTokensUnknown]);
});

/** What a server works on, and what happens while it is asked: requests of ours come and go, and it may have begun any of them. */
const happening = fc.record({
  before: fc.nat(6),
  begun: fc.nat(6),
  ended: fc.nat(6),
  /** Placed while the question is on its way. */
  meanwhile: fc.nat(4),
  /** How many of those are there when it looks, and how many of those before have ended or begun by then. */
  seenNew: fc.nat(4),
  seenEnded: fc.nat(6),
  seenBegun: fc.nat(10),
  elsewhere: fc.nat(5),
  others: fc.nat(5),
  othersWaiting: fc.nat(5),
});

test('nothing that is ours is ever taken for others’, whenever the server looks', () => {
  fc.assert(
    fc.property(happening, (what) => {
      const process = new Process();
      const [server] = process.fleet.members as [Named, Named];
      const only = (member: Named): boolean => member === server;
      process.fleet.loadedElsewhere(server, what.elsewhere, 1_000 * what.elsewhere, what.elsewhere);
      const ours = Array.from({ length: what.before }, () => process.place(0, only));
      for (const each of ours.slice(0, what.begun)) each.begun(10);
      if (ours.length === 0) process.place(0, ({ label }) => label === 's-1').end(0);
      const question = process.due(250).find(({ member }) => member === server)!;
      const placed = Array.from({ length: what.meanwhile }, () => process.place(260, only));
      for (const each of ours.slice(0, what.ended)) each.end(270);
      // When it looked, some of the new were there, some of the old no longer, and of the rest some were being read.
      const there = Math.max(0, what.before - what.seenEnded) + Math.min(what.meanwhile, what.seenNew) + what.elsewhere;
      const couldWait = Math.max(0, what.before - what.begun) + Math.min(what.meanwhile, what.seenNew) + what.elsewhere;
      const waiting = Math.min(there, Math.max(0, couldWait - what.seenBegun));
      const othersWaiting = Math.min(what.others, what.othersWaiting);
      process.reports.answered(
        question,
        report(there - waiting + what.others - othersWaiting, waiting + othersWaiting),
        300,
      );
      const usual = process.fleet.usualTokens;
      assert.ok(server.runningForeign <= what.others, `${server.runningForeign} of ${what.others}`);
      assert.ok(server.waitingTokensForeign <= othersWaiting * usual);
      for (const each of placed) each.end(400);
    }),
  );
});

test('of many processes mostly one asks a server, and the others hear of it', () => {
  const count = 30;
  const processes = Array.from({ length: count }, (_, index) => new Process(2, index + 1));
  let asked = 0;
  let oldestMs = 0;
  const seconds = 40;
  const stateOf = new Map<Named, number>();
  for (let nowMs = 0; nowMs < seconds * 1_000; nowMs += 250) {
    for (const process of processes) {
      if (nowMs % 1_000 === 0) process.place(nowMs);
      for (const question of process.due(nowMs)) {
        if (nowMs >= 10_000) asked++;
        process.reports.answered(question, report(7 + count * seconds, 0, 5_000), nowMs);
        stateOf.set(question.member, nowMs);
      }
    }
    if (nowMs % 500 !== 0) continue;
    const messages = processes.flatMap(({ peers }, index) => {
      const text = peers.report(nowMs);
      return text === undefined ? [] : [{ from: String(index), text }];
    });
    for (const [index, { peers }] of processes.entries())
      peers.hear(
        messages.filter(({ from }) => from !== String(index)),
        nowMs,
      );
    const latest = Math.max(...stateOf.values());
    if (nowMs >= 10_000) oldestMs = Math.max(oldestMs, nowMs - latest);
  }
  // Two servers, asked every two seconds by somebody: 30 questions, and those who asked at the same time; 900 if each asked.
  assert.ok(asked >= 18 && asked <= 120, `${asked} questions`);
  assert.ok(oldestMs <= 5_000, `${oldestMs} ms`);
  for (const { fleet } of processes)
    for (const { cacheTokensMax, runningForeign } of fleet.members) {
      assert.equal(cacheTokensMax, 5_000);
      assert.ok(runningForeign > 0);
    }
});

test('what another process says is taken only in its form, and the rest of its message counts', () => {
  const [one, two] = [new Process(), new Process()];
  one.place(0);
  const [question] = one.due(250) as [Question<Named>];
  one.reports.answered(question, report(4, 1, 9_000), 300);
  const text = one.peers.report(400)!;
  two.peers.hear([{ from: 'one', text }], 400);
  assert.deepEqual(foreign(two), foreign(one));
  assert.equal(two.fleet.members[0]!.cacheTokensMax, 9_000);
  for (const servers of [
    '{"m":{"s-0":[0,-1,0,0]}}',
    '{"m":{"s-0":[0,1e99,0,0]}}',
    '{"m":[]}',
    '7',
    '{"m":{"s-0":[0,1]}}',
  ]) {
    const third = new Process();
    const message = { ...(JSON.parse(text) as object), servers: JSON.parse(servers) as unknown };
    third.peers.hear([{ from: 'one', text: JSON.stringify(message) }], 400);
    assert.deepEqual(foreign(third)[0], [0, 0]);
    assert.equal(third.fleet.members[0]!.runningElsewhere, 1, 'the load counts');
  }
});

test('a router whose servers are asked serves faster beside another that it knows nothing of', () => {
  const servers = 8;
  const trace = faster(generateTrace({ seconds: 600, conversationsPerSecond: 4, applications: 16, seed: 1 }), 2);
  const shape = { servers, cacheBlocks: 2_000, tokensPerSecond: 8_000 };
  const name = 'all to every second server by another, half of the load';
  const unseen = runFleet(trace, shape, policies[name]!);
  const seen = runFleet(trace, shape, policies[`${name}, servers asked`]!);
  assert.ok(seen.p90 < unseen.p90, `${seen.p90} s, ${unseen.p90} s`);
});
