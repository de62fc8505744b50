import assert from 'node:assert/strict';
import { test } from 'node:test';

import fc from 'fast-check';

import type { GenerationEvent } from '../../src/generation/event.ts';
import { Fold, noUsage } from '../../src/generation/fold.ts';
import type { Generation } from '../../src/generation/fold.ts';
import { legalStream } from './legal-streams.ts';

const text = (said: string, choice = 0): GenerationEvent => ({ type: 'text', choice, text: said });
const thought = (said: string, choice = 0): GenerationEvent => ({ type: 'reasoning', choice, text: said });
const finish = (choice = 0): GenerationEvent => ({ type: 'finish', choice, reason: 'stop' });
const call = (index: number): GenerationEvent => ({
  type: 'tool-call',
  choice: 0,
  call: index,
  id: `c${index}`,
  name: 'f',
});
const fragment = (index: number, said: string): GenerationEvent => ({
  type: 'tool-arguments',
  choice: 0,
  call: index,
  text: said,
});

function folded(...events: readonly GenerationEvent[]): Generation {
  const fold = new Fold();
  for (const event of events) fold.read([event]);
  return fold.generation();
}

test('blocks keep the order in which the model produced them, and runs of one kind are one block', () => {
  const { choices } = folded(
    thought('a'),
    thought('b'),
    text('c'),
    call(0),
    fragment(0, '{'),
    fragment(0, '}'),
    thought('d'),
    text('e'),
    text('f'),
    finish(),
  );
  assert.deepEqual(choices[0]?.blocks, [
    { type: 'reasoning', text: 'ab' },
    { type: 'text', text: 'c' },
    { type: 'tool-call', call: 0, id: 'c0', name: 'f', arguments: '{}' },
    { type: 'reasoning', text: 'd' },
    { type: 'text', text: 'ef' },
  ]);
});

test('arguments of parallel calls find their own call', () => {
  const { choices } = folded(call(0), call(1), fragment(1, 'b'), fragment(0, 'a'), fragment(1, 'B'), finish());
  assert.deepEqual(
    choices[0]?.blocks.map((block) => block.type === 'tool-call' && block.arguments),
    ['a', 'bB'],
  );
});

test('choices are numbered, whichever speaks or ends first', () => {
  const { choices } = folded(text('x', 2), finish(2), finish(0), text('y', 1), finish(1));
  assert.deepEqual(
    choices.map(({ index, blocks }) => [index, blocks.length]),
    [
      [0, 0],
      [1, 1],
      [2, 1],
    ],
  );
});

test('a finish keeps what the engine knows of it, and an absent usage stays absent', () => {
  const generation = folded({
    type: 'finish',
    choice: 0,
    reason: 'stop',
    stopSequence: '\n',
    stopTokenId: 2,
    cause: 'window',
  });
  assert.deepEqual(generation.choices[0]?.finish, {
    reason: 'stop',
    stopSequence: '\n',
    stopTokenId: 2,
    cause: 'window',
  });
  assert.deepEqual(generation.usage, noUsage);
});

test('a cut answer is never a whole one, and nothing follows a finish', () => {
  assert.throws(() => folded(text('x')), /no finish/);
  assert.throws(() => folded(finish(1)), /choice 0 has no finish/);
  assert.throws(() => folded(finish(), text('x')), /follows the finish/);
  assert.throws(() => folded(finish(), finish()), /follows the finish/);
  assert.throws(() => folded(fragment(0, 'x'), finish()), /not opened/);
});

test('what is folded does not depend on how the stream was cut', () => {
  fc.assert(
    fc.property(legalStream, (stream) => {
      const whole = new Fold();
      for (const batch of stream.batches) whole.read(batch);
      assert.deepEqual(folded(...stream.batches.flat()), whole.generation());
      assert.deepEqual(whole.generation().usage, stream.usage);
    }),
  );
});
