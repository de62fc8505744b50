import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { GenerationEvent } from '../../../../src/generation/event.ts';
import { decode, newDecoder } from './decoding.ts';

/** One delta's `tool_calls`. */
type Fragments = readonly Readonly<Record<string, unknown>>[];

interface Case {
  readonly what: string;
  readonly deltas: readonly Fragments[];
  readonly finish?: string;
  readonly gives: readonly string[];
  readonly reason?: string;
}

const named = (name: string, args?: unknown) => ({ name, ...(args === undefined ? {} : { arguments: args }) });
const paris = '{"city": "Paris"}';

/** Servers deliver calls whole or in fragments, and tell them apart in different ways (§4.2.2(6)). */
const cases: readonly Case[] = [
  {
    what: 'in fragments',
    deltas: [
      [{ index: 0, id: 'call_a', type: 'function', function: named('f', '') }],
      [{ index: 0, function: { arguments: '{"city": ' } }],
      [{ index: 0, function: { arguments: '"Paris"}' } }],
    ],
    gives: [`call_a f ${paris}`],
  },
  {
    what: 'whole, several in one chunk',
    deltas: [
      [
        { index: 0, id: 'call_a', function: named('f', paris) },
        { index: 1, id: 'call_b', function: named('g', '{}') },
      ],
    ],
    gives: [`call_a f ${paris}`, 'call_b g {}'],
  },
  {
    what: 'whole, several in one chunk, without an index',
    deltas: [
      [
        { id: 'call_a', function: named('f', paris) },
        { id: 'call_b', function: named('g', '{}') },
      ],
    ],
    gives: [`call_a f ${paris}`, 'call_b g {}'],
  },
  {
    what: 'whole, one a chunk, without an index',
    deltas: [[{ id: 'call_a', function: named('f', paris) }], [{ id: 'call_b', function: named('f', paris) }]],
    gives: [`call_a f ${paris}`, `call_b f ${paris}`],
  },
  {
    what: 'in fragments without an index, the id in each',
    deltas: [
      [{ id: 'call_a', function: named('f', '{"city": ') }],
      [{ id: 'call_a', function: { arguments: '"Paris"}' } }],
      [{ id: 'call_b', function: named('g', '{}') }],
    ],
    gives: [`call_a f ${paris}`, 'call_b g {}'],
  },
  {
    what: 'in fragments without an index, an empty id in the later ones',
    deltas: [
      [{ id: 'call_a', function: named('f', '{"city": ') }],
      [{ id: '', function: { name: null, arguments: '"Paris"}' } }],
    ],
    gives: [`call_a f ${paris}`],
  },
  {
    what: 'the same index for every call',
    deltas: [
      [{ index: 0, id: 'call_a', function: named('f', paris) }],
      [{ index: 0, id: 'call_b', function: named('g', '{}') }],
    ],
    gives: [`call_a f ${paris}`, 'call_b g {}'],
  },
  {
    what: 'the id and the name in every fragment',
    deltas: [
      [{ index: 0, id: 'call_a', function: named('f', '{"city": ') }],
      [{ index: 0, id: 'call_a', function: named('f', '"Paris"}') }],
    ],
    gives: [`call_a f ${paris}`],
  },
  {
    what: 'indexes that begin at 1, with a gap, and interleave',
    deltas: [
      [{ index: 1, id: 'call_a', function: named('f', '{"city": ') }],
      [{ index: 4, id: 'call_b', function: named('g', '{') }],
      [{ index: 1, function: { arguments: '"Paris"}' } }],
      [{ index: 4, function: { arguments: '}' } }],
    ],
    gives: [`call_a f ${paris}`, 'call_b g {}'],
  },
  {
    what: 'two entries of one call in one chunk',
    deltas: [
      [
        { index: 0, id: 'call_a', function: named('f') },
        { index: 0, function: { arguments: paris } },
      ],
    ],
    gives: [`call_a f ${paris}`],
  },
  {
    what: 'arguments before the name',
    deltas: [
      [{ index: 0, id: 'call_a', function: { arguments: '{"city": ' } }],
      [{ index: 0, function: named('f', '"Paris"}') }],
    ],
    gives: [`call_a f ${paris}`],
  },
  {
    what: 'arguments as an object',
    deltas: [[{ index: 0, id: 'call_a', function: named('f', { city: 'Paris' }) }]],
    gives: ['call_a f {"city":"Paris"}'],
  },
  { what: 'no id', deltas: [[{ index: 0, function: named('f', paris) }]], gives: [`call_<made> f ${paris}`] },
  {
    what: 'an id of another form',
    deltas: [[{ index: 0, id: 'chatcmpl-tool-12', function: named('f', paris) }]],
    gives: [`call_12 f ${paris}`],
  },
  {
    what: 'an id that is no header text',
    deltas: [[{ index: 0, id: 'é\n', function: named('f', paris) }]],
    gives: [`call_<made> f ${paris}`],
  },
  { what: 'no arguments', deltas: [[{ index: 0, id: 'call_a', function: named('f') }]], gives: ['call_a f {}'] },
  { what: 'empty arguments', deltas: [[{ index: 0, id: 'call_a', function: named('f', '') }]], gives: ['call_a f {}'] },
  {
    what: 'arguments that max_tokens cut',
    deltas: [[{ index: 0, id: 'call_a', function: named('f', '{"city": "Pa') }]],
    finish: 'length',
    gives: ['call_a f {"city": "Pa'],
    reason: 'length',
  },
  {
    what: 'a call that max_tokens cut before its arguments',
    deltas: [[{ index: 0, id: 'call_a', function: named('f', '') }]],
    finish: 'length',
    gives: ['call_a f '],
    reason: 'length',
  },
  {
    what: 'the finish `stop` behind a call',
    deltas: [[{ index: 0, id: 'call_a', function: named('f', '{}') }]],
    finish: 'stop',
    gives: ['call_a f {}'],
  },
  { what: 'the finish `tool_calls` without a call', deltas: [], gives: [], reason: 'stop' },
];

describe('tool calls of HTTP servers', () => {
  for (const { what, deltas, finish = 'tool_calls', gives, reason = 'tool-calls' } of cases) {
    test(`${what}`, () => {
      const chunks = [
        ...deltas.map((calls) => ({ choices: [{ index: 0, delta: { tool_calls: calls } }] })),
        { choices: [{ index: 0, delta: {}, finish_reason: finish }] },
      ];
      const stream = Buffer.from(chunks.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`).join(''));
      const { events, failure } = decode([stream]);
      assert.equal(failure, undefined);
      assert.deepEqual(callsOf(events), gives);
      assert.equal(events.find((event) => event.type === 'finish')?.reason, reason);
    });
  }

  test('in the message of a whole answer', () => {
    const decoder = newDecoder();
    const call = { id: 'a', type: 'function', function: named('f', paris) };
    decoder.whole(
      JSON.stringify({
        choices: [
          { index: 0, message: { content: null, tool_calls: [call, { ...call, id: 'b' }] }, finish_reason: 'stop' },
        ],
        usage: { prompt_tokens: 3, completion_tokens: 9 },
      }),
    );
    assert.deepEqual(callsOf(decoder.drain()), [`call_a f ${paris}`, `call_b f ${paris}`]);
  });

  test('a thousand calls are a fault', () => {
    const calls = Array.from({ length: 1000 }, (_, index) => ({
      index: 0,
      id: `call_${index}`,
      function: named('f', '{}'),
    }));
    const chunk = { choices: [{ index: 0, delta: { tool_calls: calls } }] };
    assert.equal(decode([Buffer.from(`data: ${JSON.stringify(chunk)}\n\n`)]).failure, 'StreamFault');
  });
});

/** `id name arguments`, in the order of the calls; ids that were made here are all alike. */
function callsOf(events: readonly GenerationEvent[]): string[] {
  const calls: string[] = [];
  for (const event of events) {
    if (event.type === 'tool-call') {
      assert.equal(event.call, calls.length, 'calls count from 0 without gaps');
      assert.match(event.id, /^call_[\x21-\x7e]+$/);
      calls.push(`${event.id.replace(/^call_[0-9a-f]{30,}_\d+$/, 'call_<made>')} ${event.name} `);
    } else if (event.type === 'tool-arguments') calls[event.call] += event.text;
  }
  return calls;
}
