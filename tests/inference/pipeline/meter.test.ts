import assert from 'node:assert/strict';
import { test } from 'node:test';

import fc from 'fast-check';

import type { GenerationBatch, GenerationEvent, Usage } from '../../../src/generation/event.ts';
import { Fold } from '../../../src/generation/fold.ts';
import { Meter } from '../../../src/inference/pipeline/meter.ts';
import { legalStream } from '../../generation/legal-streams.ts';
import type { LegalStream } from '../../generation/legal-streams.ts';

const order = (choices: number, promptTokensLikely = 7, promptTokensPossible = 1_000_000) => ({
  choices,
  promptTokensLikely,
  promptTokensPossible,
  begunMs: 0,
});
const usageOf = (promptTokens: number, completionTokens: number, cachedTokens = 0, reasoningTokens = 0): Usage => ({
  promptTokens,
  cachedTokens,
  completionTokens,
  reasoningTokens,
});

const start = (promptTokens: number | undefined, cachedTokens?: number): GenerationEvent =>
  cachedTokens === undefined ? { type: 'start', promptTokens } : { type: 'start', promptTokens, cachedTokens };
const text = (said = 'x', choice = 0): GenerationEvent => ({ type: 'text', choice, text: said });
const reasoning: GenerationEvent = { type: 'reasoning', choice: 0, text: 'x' };
const call: GenerationEvent = { type: 'tool-call', choice: 0, call: 0, id: 'c', name: 'f' };
const fragment: GenerationEvent = { type: 'tool-arguments', choice: 0, call: 0, text: '{}' };
const finish = (choice = 0): GenerationEvent => ({ type: 'finish', choice, reason: 'stop' });
const report = (usage: Usage, counted?: boolean): GenerationEvent =>
  counted === undefined ? { type: 'usage', usage } : { type: 'usage', usage, counted };

/** The usage that ends a batch with content, whatever its figures. */
const so = report(usageOf(1, 1));

/** What the meter makes of the batches that it has read, in order. */
const countings: readonly (readonly [string, readonly GenerationBatch[], Usage, boolean])[] = [
  ['nothing yet: the estimate', [], usageOf(7, 0), true],
  ['the start tells the prompt', [[start(10, 4)]], usageOf(10, 0, 4), false],
  ['the start does not tell it', [[start(undefined)]], usageOf(7, 0), true],
  ['a finish is no token', [[start(10)], [finish()]], usageOf(10, 0), false],
  [
    'what the backend reports replaces the estimate',
    [[start(10)], [text(), text(), report(usageOf(10, 2), true)], [report(usageOf(12, 5, 1, 2))]],
    usageOf(12, 5, 1, 2),
    false,
  ],
  [
    'a later report replaces an earlier one',
    [[start(10)], [report(usageOf(10, 5))], [report(usageOf(10, 3))]],
    usageOf(10, 3),
    false,
  ],
  ['what was said, and the report of it', [[start(10), text(), text(), report(usageOf(10, 1))]], usageOf(10, 1), false],
  ['figures that the engine counted itself', [[start(10)], [report(usageOf(10, 5), true)]], usageOf(10, 5), true],
  [
    'a report after the last finish',
    [[start(10)], [text(), finish(), report(usageOf(10, 1), true)], [report(usageOf(10, 9))]],
    usageOf(10, 9),
    false,
  ],
  ['another backend starts over', [[start(10, 5)], [report(usageOf(10, 4))], [start(20)]], usageOf(20, 0), false],
  ['another backend that does not tell', [[start(10)], [start(undefined)]], usageOf(7, 0), true],
];

for (const [name, batches, usage, counted] of countings) {
  test(`counting: ${name}`, () => {
    const meter = new Meter(order(1));
    let reported = meter.usage;
    for (const batch of batches) reported = meter.read(batch);
    assert.deepEqual(reported, usage);
    assert.deepEqual(meter.usage, usage);
    assert.equal(meter.counted, counted);
  });
}

/** What goes to the client after each batch, and in the end; only kinds and choices are written. */
const passages: readonly (readonly [string, number, readonly GenerationBatch[], readonly string[]])[] = [
  ['the start waits for content', 1, [[start(1)], [text(), so], [finish()]], ['', 'start text0', '', 'finish0 usage']],
  ['all in one batch', 1, [[start(1), text(), finish(), report(usageOf(1, 1))]], ['start text0', 'finish0 usage']],
  ['no content at all', 1, [[start(1)], [finish()]], ['', '', 'start finish0 usage']],
  [
    'reports never pass',
    1,
    [[start(1)], [report(usageOf(1, 0))], [text(), report(usageOf(1, 1))], [finish()]],
    ['', '', 'start text0', '', 'finish0 usage'],
  ],
  [
    'a failover shows one start',
    1,
    [[start(1)], [start(2)], [text(), so], [finish()]],
    ['', '', 'start text0', '', 'finish0 usage'],
  ],
  [
    'of several finishes the last waits',
    2,
    [[start(1)], [text('x', 0), text('x', 1), so], [finish(1)], [text('x', 0), so], [finish(0)]],
    ['', 'start text0 text1', 'finish1', 'text0', '', 'finish0 usage'],
  ],
  ['both finishes in one batch', 2, [[start(1), finish(1), finish(0)]], ['start finish1', 'finish0 usage']],
  [
    'a finish before any text of another choice',
    2,
    [[start(1)], [finish(0)], [text('x', 1), so], [finish(1)]],
    ['', 'start finish0', 'text1', '', 'finish1 usage'],
  ],
];

for (const [name, choices, batches, expected] of passages) {
  test(`passing: ${name}`, () => {
    const meter = new Meter(order(choices));
    const seen = batches.map((batch) => {
      meter.read(batch);
      return shown(meter.pass);
    });
    assert.deepEqual([...seen, shown(meter.closing())], expected);
    assert.equal(meter.complete, true);
  });
}

test('what passes, and the closing, are the whole stream exactly once', () => {
  fc.assert(
    fc.property(legalStream, (stream) => {
      const meter = new Meter(order(stream.choices));
      const passed: GenerationEvent[] = [];
      for (const batch of stream.batches) {
        meter.read(batch);
        passed.push(...meter.pass);
        assert.ok(!meter.pass.some((event) => event.type === 'usage'), '§2.7: usage only in the last chunk');
        assert.ok(passed.filter((event) => event.type === 'finish').length < stream.choices, 'the last finish waits');
      }
      assert.equal(meter.complete, true);
      passed.push(...meter.closing());
      const said = stream.batches.flat();
      const content = said.filter((event) => event.type !== 'usage');
      // One usage, the last: with what was counted after it, if the stream went on.
      assert.deepEqual(passed.slice(0, -1), content);
      assert.deepEqual(passed.at(-1), { type: 'usage', usage: meter.usage, counted: meter.counted });
      assert.deepEqual(meter.usage, stream.usage);
    }),
    { numRuns: 2000 },
  );
});

test('after a failover the client sees the second backend’s stream and no other', () => {
  fc.assert(
    fc.property(legalStream, fc.nat(50), fc.boolean(), (stream, promptTokens, reports) => {
      const first: readonly GenerationBatch[] = [
        [start(promptTokens)],
        ...(reports ? [[report(usageOf(promptTokens, 0))]] : []),
      ];
      assert.deepEqual(
        transcript(stream.choices, [...first, ...stream.batches]),
        transcript(stream.choices, stream.batches),
      );
    }),
  );
});

test('an answer cut for credit ends before the batch that was not paid for, once for every choice', () => {
  fc.assert(
    fc.property(legalStream, fc.nat(), (stream, at) => {
      const cutAt = at % stream.batches.length;
      const meter = new Meter(order(stream.choices));
      const out: GenerationEvent[] = [];
      let before = meter.usage;
      for (const batch of stream.batches.slice(0, cutAt)) {
        before = meter.read(batch);
        out.push(...meter.pass);
      }
      meter.read(stream.batches[cutAt] ?? []);
      meter.cut('credit', before);
      assert.deepEqual(meter.pass, [], 'the unpaid batch stays here');
      assert.equal(meter.complete && meter.cutByCredit, true);
      out.push(...meter.closing());
      assertCut(stream, cutAt, out, before);
    }),
    { numRuns: 2000 },
  );
});

/** Everything before the cut, then a finish for every choice that had none, then the usage that is paid. */
function assertCut(stream: LegalStream, cutAt: number, out: readonly GenerationEvent[], paid: Usage): void {
  const said = stream.batches.slice(0, cutAt).flat();
  const content = (events: readonly GenerationEvent[]): readonly GenerationEvent[] =>
    events.filter((event) => event.type !== 'finish' && event.type !== 'usage' && event.type !== 'start');
  assert.deepEqual(content(out), content(said));
  for (let choice = 0; choice < stream.choices; choice++) {
    const finishOf = (events: readonly GenerationEvent[]): readonly GenerationEvent[] =>
      events.filter((event) => event.type === 'finish' && event.choice === choice);
    const own = finishOf(said);
    const cut: GenerationEvent = { type: 'finish', choice, reason: 'length', cause: 'credit' };
    assert.deepEqual(finishOf(out), own.length === 1 ? own : [cut]);
  }
  assert.deepEqual(
    out.map((event) => event.type === 'start'),
    out.map((_, at) => at === 0),
    'one start, first',
  );
  const last = out.at(-1);
  assert.deepEqual(last?.type === 'usage' && last.usage, paid);
  const fold = new Fold();
  fold.read(out);
  assert.equal(fold.generation().choices.length, stream.choices, 'the whole answer can be printed');
}

test('broken promises of an engine fail the request', () => {
  const read =
    (choices: number, ...batches: readonly GenerationBatch[]) =>
    (): void => {
      const meter = new Meter(order(choices));
      for (const batch of batches) meter.read(batch);
    };
  assert.throws(read(1, [start(1)], [finish()], [finish()]), /choice 0/);
  assert.throws(read(1, [start(1)], [finish(1)]), /choice 1/);
  assert.throws(read(1, [start(1), finish(), text()]), /choice 0/);
  assert.throws(read(2, [start(1), finish(1)], [text('x', 1)]), /choice 1/);
  assert.throws(read(2, [start(1), text('x', 2)]), /choice 2/);
  assert.throws(read(1, [start(1), finish(), reasoning]), /choice 0/);
  assert.throws(read(1, [start(1), finish(), fragment]), /choice 0/);
  // A client that leaves now would pay for none of it.
  for (const event of [text(), reasoning, call, fragment]) {
    assert.throws(read(1, [start(1), event]), /usage/);
    assert.throws(read(1, [start(1), so, event]), /usage/);
  }
});

test('an answer is complete when every choice has finished, and not before', () => {
  const meter = new Meter(order(2));
  assert.deepEqual([meter.started, meter.complete, meter.finishReason, meter.firstTokenMs], [false, false, null, null]);
  meter.read([start(1)]);
  assert.deepEqual([meter.started, meter.complete, meter.firstTokenMs], [true, false, null]);
  meter.read([text('x', 1), so]);
  assert.ok(meter.firstTokenMs !== null && meter.firstTokenMs >= 0);
  meter.read([finish(1)]);
  assert.deepEqual([meter.complete, meter.finishReason], [false, 'stop']);
  meter.read([finish(0)]);
  assert.deepEqual([meter.complete, meter.cutByCredit], [true, false]);
});

function transcript(choices: number, batches: readonly GenerationBatch[]): readonly GenerationEvent[] {
  const meter = new Meter(order(choices));
  const passed = batches.flatMap((batch) => {
    meter.read(batch);
    return meter.pass;
  });
  return [...passed, ...meter.closing()];
}

const shown = (batch: GenerationBatch): string =>
  batch.map((event) => ('choice' in event ? `${event.type}${event.choice}` : event.type)).join(' ');

test('a prompt that nobody could make so long is lowered and marked, no matter who reports it and when', () => {
  for (const [reported, kept, counted] of [
    [100, 100, false],
    [101, 100, true],
    [3_000, 100, true],
  ] as const) {
    const meter = new Meter(order(1, 7, 100));
    meter.read([start(reported, reported), text(), report(usageOf(reported, 1, reported), true)]);
    assert.deepEqual([meter.usage.promptTokens, meter.usage.cachedTokens], [kept, kept]);
    meter.read([{ type: 'finish', choice: 0, reason: 'stop' }]);
    meter.read([{ type: 'usage', usage: usageOf(reported, 1, reported), counted: false }]);
    assert.deepEqual([meter.usage, meter.counted], [usageOf(kept, 1, kept), counted]);
    assert.deepEqual(meter.closing().at(-1), { type: 'usage', usage: usageOf(kept, 1, kept), counted });
  }
});
