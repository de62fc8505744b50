import fc from 'fast-check';

import type {
  FinishReason,
  GenerationBatch,
  GenerationEvent,
  TokenLogprob,
  Usage,
} from '../../src/generation/event.ts';

/** A stream that keeps every promise of an engine. */
export interface LegalStream {
  readonly choices: number;
  readonly batches: readonly GenerationBatch[];
  /** The last figures that the engine reported. */
  readonly usage: Usage;
}

/** Text with everything that JSON and server-sent events care about, but for halves of characters, which decoders hold back. */
const text = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 12 }),
  fc.string({ unit: 'grapheme', maxLength: 6 }),
  fc.constantFrom('\n\n', '\r', 'data: [DONE]\n\n', '"', '\\', '\u2028', '\u0085', '\u0000', '', '{"a":1}', '😀'),
);

const logprob: fc.Arbitrary<number> = fc.oneof(
  fc.double({ min: -50, max: 0, noNaN: true }).map((value) => (Object.is(value, -0) ? 0 : value)),
  fc.constant(-Infinity),
);
const bytes = fc.option(fc.array(fc.nat(255), { maxLength: 4 }), { nil: undefined });
const alternative = fc.record({ token: text, tokenId: fc.option(fc.nat(200_000), { nil: undefined }), bytes, logprob });
const tokenLogprob: fc.Arbitrary<TokenLogprob> = fc.record({
  token: text,
  tokenId: fc.option(fc.nat(200_000), { nil: undefined }),
  bytes,
  logprob,
  top: fc.array(alternative, { maxLength: 3 }),
});

/** A step of one choice: a fragment of text, of reasoning, a new call, or arguments of one of the calls so far. */
const step = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant('text' as const),
      text,
      logprobs: fc.option(fc.array(tokenLogprob, { maxLength: 2 }), { nil: undefined }),
    }),
  },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('reasoning' as const), text }) },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant('call' as const),
      id: fc.string({ minLength: 1, maxLength: 8 }),
      name: fc.string({ minLength: 1, maxLength: 8 }),
    }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('arguments' as const), text, which: fc.nat() }) },
);
type Step = typeof step extends fc.Arbitrary<infer Value> ? Value : never;

const finish = fc.record({
  reason: fc.constantFrom<FinishReason>('stop', 'length', 'tool-calls'),
  stopSequence: fc.option(text, { nil: undefined }),
});

const usage: fc.Arbitrary<Usage> = fc
  .record({ prompt: fc.nat(10_000), cached: fc.nat(), completion: fc.nat(10_000), reasoning: fc.nat() })
  .map(({ prompt, cached, completion, reasoning }) => ({
    promptTokens: prompt,
    cachedTokens: cached % (prompt + 1),
    completionTokens: completion,
    reasoningTokens: reasoning % (completion + 1),
  }));

/** Choices are interleaved at will, and so are reports of usage; the stream is cut into batches anywhere. */
export const legalStream: fc.Arbitrary<LegalStream> = fc
  .record({
    choices: fc.array(fc.record({ steps: fc.array(step, { maxLength: 8 }), finish }), { minLength: 1, maxLength: 4 }),
    turns: fc.infiniteStream(fc.nat()),
    reports: fc.array(usage, { maxLength: 3 }),
    last: usage,
    lastComesFirst: fc.boolean(),
    cuts: fc.infiniteStream(fc.nat(3)),
    passing: fc.infiniteStream(usage),
  })
  .map(({ choices, turns, reports, last, lastComesFirst, cuts, passing }) => {
    const queues = choices.map(({ steps, finish: end }, choice) => [...eventsOf(steps, choice), finishOf(end, choice)]);
    const middle = interleaved(
      [...queues, reports.map((report): GenerationEvent => ({ type: 'usage', usage: report }))],
      turns,
    );
    const closing: GenerationEvent = { type: 'usage', usage: last };
    // Some backends report before the last finish, some after it.
    const before = lastComesFirst && middle.at(-1)?.type === 'finish' ? middle.length - 1 : middle.length;
    const events: readonly GenerationEvent[] = [
      { type: 'start', promptTokens: last.promptTokens, cachedTokens: last.cachedTokens },
      ...middle.slice(0, before),
      closing,
      ...middle.slice(before),
    ];
    return {
      choices: choices.length,
      batches: cutInto(events, cuts).map((batch) => withUsage(batch, passing)),
      usage: last,
    };
  });

function eventsOf(steps: readonly Step[], choice: number): GenerationEvent[] {
  let calls = 0;
  return steps.flatMap((one): GenerationEvent[] => {
    switch (one.kind) {
      case 'text':
        return [
          { type: 'text', choice, text: one.text, ...(one.logprobs === undefined ? {} : { logprobs: one.logprobs }) },
        ];
      case 'reasoning':
        return [{ type: 'reasoning', choice, text: one.text }];
      case 'call':
        return [{ type: 'tool-call', choice, call: calls++, id: one.id, name: one.name }];
      case 'arguments':
        return calls === 0 ? [] : [{ type: 'tool-arguments', choice, call: one.which % calls, text: one.text }];
    }
  });
}

const finishOf = (
  end: { readonly reason: FinishReason; readonly stopSequence: string | undefined },
  choice: number,
): GenerationEvent => ({
  type: 'finish',
  choice,
  reason: end.reason,
  ...(end.stopSequence === undefined ? {} : { stopSequence: end.stopSequence }),
});

function interleaved(queues: readonly GenerationEvent[][], turns: Iterator<number>): GenerationEvent[] {
  const events: GenerationEvent[] = [];
  for (;;) {
    const waiting = queues.filter((queue) => queue.length > 0);
    const next = waiting[(turns.next().value as number) % Math.max(1, waiting.length)]?.shift();
    if (next === undefined) return events;
    events.push(next);
  }
}

const content: ReadonlySet<string> = new Set(['text', 'reasoning', 'tool-call', 'tool-arguments']);

/** A batch with content ends with the usage up to there. */
function withUsage(batch: GenerationBatch, passing: Iterator<Usage>): GenerationBatch {
  const said = batch.findLastIndex(({ type }) => content.has(type));
  if (batch.findLastIndex(({ type }) => type === 'usage') >= said) return batch;
  return [...batch, { type: 'usage', usage: passing.next().value as Usage }];
}

function cutInto(events: readonly GenerationEvent[], cuts: Iterator<number>): GenerationBatch[] {
  const batches: GenerationBatch[] = [];
  for (let at = 0; at < events.length;) {
    const size = 1 + (cuts.next().value as number);
    batches.push(events.slice(at, at + size));
    at += size;
  }
  return batches;
}
