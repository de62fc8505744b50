import fc from 'fast-check';
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Blocks } from '../../../src/inference/dialects/blocks.ts';
import type { BlockEvent } from '../../../src/inference/dialects/blocks.ts';
import type { GenerationEvent } from '../../../src/generation/event.ts';
import { Fold } from '../../../src/generation/fold.ts';
import type { Block } from '../../../src/generation/fold.ts';

const text = (words: string): GenerationEvent => ({ type: 'text', choice: 0, text: words });
const reasoning = (words: string): GenerationEvent => ({ type: 'reasoning', choice: 0, text: words });

/** What one turn of a model says, in the order in which servers send it. */
const turns = fc
  .array(
    fc.oneof(
      fc.string().map(text),
      fc.string().map(reasoning),
      fc.array(fc.string(), { maxLength: 4 }).map((pieces) => pieces),
    ),
    { maxLength: 12 },
  )
  .map((parts) => {
    let call = 0;
    return parts.flatMap((part): GenerationEvent[] => {
      if (!Array.isArray(part)) return [part];
      const number = call++;
      return [
        { type: 'tool-call', choice: 0, call: number, id: `call_${number}`, name: 'look' },
        ...part.map((words): GenerationEvent => ({ type: 'tool-arguments', choice: 0, call: number, text: words })),
      ];
    });
  });

test('blocks follow each other, grow by their deltas, and are those of the whole answer', () => {
  fc.assert(
    fc.property(turns, (events) => {
      const blocks = new Blocks();
      const fold = new Fold();
      fold.read(events);
      fold.read([{ type: 'finish', choice: 0, reason: 'stop' }]);
      const heard: BlockEvent[] = events.flatMap((event) => blocks.read(event).map((each) => structuredClone(each)));
      heard.push(...blocks.close());

      let open: number | undefined;
      const grown: string[] = [];
      const closed: Block[] = [];
      for (const event of heard) {
        if (event.type === 'open') {
          assert.equal(open, undefined);
          open = event.index;
          assert.equal(event.index, grown.length);
          grown.push('');
          continue;
        }
        assert.equal(event.index, open);
        if (event.type === 'delta') grown[event.index] += event.text;
        else {
          open = undefined;
          closed.push(event.block);
        }
      }
      assert.equal(open, undefined);
      assert.deepEqual(
        closed.map((block) => (block.type === 'tool-call' ? block.arguments : block.text)),
        grown,
      );
      // An empty delta makes an empty block of a whole answer, and none here.
      const whole = fold
        .generation()
        .choices[0]?.blocks.filter((block) => block.type === 'tool-call' || block.text !== '');
      assert.deepEqual(merged(closed), merged(whole ?? []));
    }),
  );
});

/** Neighbours of one kind are one block. */
function merged(blocks: readonly Block[]): readonly Block[] {
  const all: Block[] = [];
  for (const block of blocks) {
    const last = all.at(-1);
    if (block.type !== 'tool-call' && last?.type === block.type) last.text += block.text;
    else all.push({ ...block });
  }
  return all;
}

test('arguments of a call that was left cannot be printed any more', () => {
  const blocks = new Blocks();
  blocks.read({ type: 'tool-call', choice: 0, call: 0, id: 'call_0', name: 'look' });
  blocks.read({ type: 'tool-call', choice: 0, call: 1, id: 'call_1', name: 'look' });
  assert.throws(() => blocks.read({ type: 'tool-arguments', choice: 0, call: 0, text: '{' }), {
    code: 'backend_http_error',
  });
});
