/** Several processes that send to the same servers choose nearly as one would (docs/decisions/039-fleets-of-replicas.md). */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { policies } from '../../../bench/simulate/policies.ts';
import { runFleet } from '../../../bench/simulate/run-fleet.ts';
import { faster, generateTrace } from '../../../bench/simulate/trace.ts';
import { FleetPeers } from '../../../src/inference/routing/fleet-peers.ts';
import { idleLoad, type BackendLoad } from '../../../src/inference/routing/backend-load.ts';
import { Fleet } from '../../../src/inference/routing/fleet.ts';

type Named = BackendLoad & { readonly label: string };

class Process {
  readonly name: string;
  readonly fleet: Fleet<Named>;
  readonly peers: FleetPeers<Named>;
  readonly healthChanges: string[] = [];

  constructor(name: string, labels: readonly string[] = ['a', 'b']) {
    this.name = name;
    this.fleet = new Fleet<Named>(
      labels.map((label) => ({ ...idleLoad(), label })),
      undefined,
      ({ label }, ejectedAtMs) => this.healthChanges.push(`${label} ${ejectedAtMs === undefined ? 'back' : 'out'}`),
    );
    this.peers = new FleetPeers(() => new Map([['m', this.fleet]]));
  }

  member(label: string): Named {
    return this.fleet.members.find((member) => member.label === label)!;
  }

  /** Places a prompt whose beginnings have these hashes. */
  place(first: number, nowMs = 0) {
    const prefixes = { hashes: [first, first + 1], tokens: [400, 900] };
    return this.fleet.place({ promptTokens: 1_000, prefixes: () => prefixes }, () => true, nowMs)!;
  }
}

/** What the one reports, and the others hear. */
function exchange(from: Process, to: readonly Process[], nowMs = 0): void {
  const text = from.peers.report(nowMs);
  for (const each of to) each.peers.hear(text === undefined ? [] : [{ from: from.name, text }], nowMs);
}

const pair = (): readonly [Process, Process] => {
  const both = [new Process('one'), new Process('two')] as const;
  // From the first report on, prompts are kept for the next.
  for (const each of both) assert.equal(each.peers.report(0), undefined, 'an idle process has nothing to report');
  return both;
};

test('a prompt goes where another process has sent its beginning', () => {
  const [one, two] = pair();
  one.place(10).end(0);
  const there = one.place(20);
  there.end(0);
  assert.equal(there.backend.label, 'b');
  exchange(one, [two]);
  const placed = two.place(20);
  assert.deepEqual([placed.backend.label, placed.reasons?.cachedTokens], ['b', 900]);
});

test('what runs and waits elsewhere counts, until it has ended or its process is silent for three seconds', () => {
  const [one, two] = pair();
  const running = one.place(10);
  exchange(one, [two]);
  assert.deepEqual([two.member('a').runningElsewhere, two.member('a').waitingTokensElsewhere], [1, 1_000]);
  const beside = two.place(30);
  assert.equal(beside.backend.label, 'b');
  beside.end(0);
  const [chosen] = [two.place(40)];
  assert.equal(chosen.backend.label, 'b', 'although it is the turn of the other');
  assert.equal(chosen.reasons?.running, 0);
  chosen.end(0);
  running.end(0);
  exchange(one, [two]);
  assert.equal(two.member('a').runningElsewhere, 0);

  one.place(50);
  exchange(one, [two], 1_000);
  assert.equal(
    two.fleet.members.reduce((sum, { runningElsewhere }) => sum + runningElsewhere, 0),
    1,
  );
  two.peers.hear([], 3_900);
  assert.equal(two.peers.count, 1);
  two.peers.hear([], 4_100);
  assert.equal(two.peers.count, 0);
  assert.ok(two.fleet.members.every(({ runningElsewhere }) => runningElsewhere === 0));
});

test('a backend that fails elsewhere is left out here once, and its return ends the pause', () => {
  const [one, two] = pair();
  const failing = one.place(10);
  for (let times = 0; times < 3; times++) failing.failed(1_000);
  failing.end(1_000);
  assert.deepEqual(one.healthChanges, ['a out']);
  exchange(one, [two], 1_100);
  assert.deepEqual(two.healthChanges, ['a out']);
  assert.equal(two.place(20, 1_200).backend.label, 'b');
  exchange(one, [two], 1_300);
  assert.deepEqual(two.healthChanges, ['a out'], 'the same again is nothing new');

  // It answers here although it did not there: what one process meets may be its network.
  const answering = new Process('three');
  const placed = answering.place(10, 1_000);
  exchange(one, [answering], 1_100);
  placed.answered({ cachedTokens: 0 });
  assert.deepEqual(answering.healthChanges, ['a out', 'a back']);

  // Its pauses grow; an answer elsewhere ends them.
  two.member('a').ejectedUntilMs = 30_000;
  const none = { hashes: [], tokens: [] };
  const onlyThere = (member: Named): boolean => member.label === 'a';
  const back = one.fleet.place({ promptTokens: 1, prefixes: () => none }, onlyThere, 2_500)!;
  back.answered({ cachedTokens: 0 });
  exchange(one, [two], 2_600);
  assert.equal(two.member('a').ejectedUntilMs, 2_600, 'from now on one request may try it');
});

test('a speed counts where none was measured', () => {
  const [one, two] = pair();
  one.member('a').measuredTokensPerSecond = 500;
  one.member('a').measurements = 4;
  one.place(10);
  exchange(one, [two]);
  assert.equal(two.member('a').measuredTokensPerSecond, 500);
  two.member('b').measuredTokensPerSecond = 9_000;
  two.member('b').measurements = 1;
  one.member('b').measuredTokensPerSecond = 100;
  one.member('b').measurements = 1;
  one.place(20);
  exchange(one, [two]);
  assert.equal(two.member('b').measuredTokensPerSecond, 9_000);
});

test('what cannot be read, and backends and models that are not here, change nothing', () => {
  const { fleet, peers } = new Process('one');
  const prompt = (hashes: unknown, tokens: unknown): string =>
    JSON.stringify({ v: 1, load: {}, prompts: { m: [['a', hashes, tokens]] } });
  const load = (values: unknown): string => JSON.stringify({ v: 1, load: { m: { a: values } }, prompts: {} });
  const texts = [
    ...[
      '',
      '{',
      'null',
      '[]',
      '{"v":2}',
      '{"v":1}',
      '{"v":1,"load":[],"prompts":{}}',
      '{"v":1,"load":{"m":3},"prompts":{}}',
    ],
    ...[[1, 2, 3, 4], [1, 2, 3, 4, -1], [1, 2, 3, 4, 0.5], [1, 2, 3, 4, '5'], [1, 2, 3, 4, 1e300], 'abcde'].map(load),
    ...[
      prompt([1], []),
      prompt(['1'], [1]),
      prompt([1], [-1]),
      prompt([1, 2], [1]),
      prompt(Array(2_000).fill(1), Array(2_000).fill(1)),
    ],
    `{"v":1,"load":{},"prompts":{"m":${JSON.stringify(Array(3_000).fill(['a', [1], [1]]))}}}`,
    `{"v":1,"load":{"m":{"a":[5,5,5,0,0]}},"prompts":{}}${' '.repeat(1_000_000)}`,
    '{"v":1,"load":{"other":{"a":[1,1,1,1,1]},"m":{"c":[1,1,1,1,1],"__proto__":[1,1,1,1,1]}},"prompts":{"m":[["c",[1],[1]]]}}',
    '{"v":1,"load":{"__proto__":{"a":[7,7,7,7,7]},"constructor":{"a":[1,1,1,1,1]}},"prompts":{"__proto__":[]}}',
  ];
  const before = JSON.stringify(fleet.members);
  peers.hear(
    texts.map((text, index) => ({ from: String(index), text })),
    0,
  );
  assert.equal(JSON.stringify(fleet.members), before);
  assert.ok(fleet.members.every(({ cached }) => cached.oldest === undefined));
});

test('a report is bounded: of more prompts the latest', () => {
  const [one, two] = pair();
  for (let index = 0; index < 3_000; index++) one.place(10 * (index + 1)).end(0);
  const text = one.peers.report(0)!;
  const { prompts } = JSON.parse(text) as { prompts: { m: readonly (readonly [string, readonly number[]])[] } };
  assert.equal(prompts.m.length, 1_000);
  assert.deepEqual(prompts.m.at(-1)![1], [30_000, 30_001]);
  two.peers.hear([{ from: 'one', text }], 0);
  assert.equal(two.place(30_000).reasons?.cachedTokens, 900);
  assert.equal(
    one.peers.report(0),
    '{"v":1,"load":{},"prompts":{},"waiting":{},"servers":{},"messages":{}}',
    'that nothing runs any more is news',
  );
  assert.equal(one.peers.report(0), undefined);
});

test('two processes that report twice a second find in the caches nearly what one finds, and much more than each by itself', () => {
  const trace = generateTrace({ seconds: 200, conversationsPerSecond: 0.7, applications: 32, seed: 1 });
  const shape = { servers: 8, cacheBlocks: 500, tokensPerSecond: 8_000 };
  for (const load of [1, 4]) {
    const played = (policy: string) => runFleet(faster(trace, load), shape, policies[policy]!);
    const [one, two, apart] = [
      'least expected first token',
      '2 replicas, 0.5 s between reports',
      '2 replicas, each by itself',
    ].map(played);
    assert.ok(two!.hitRate > 0.95 * one!.hitRate, `${load}: ${two!.hitRate} of ${one!.hitRate}`);
    assert.ok(two!.hitRate > 1.05 * apart!.hitRate, `${load}: ${two!.hitRate}, each by itself ${apart!.hitRate}`);
  }
});
