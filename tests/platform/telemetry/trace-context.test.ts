/** What the headers of W3C Trace Context are taken for, whoever has written them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import fc from 'fast-check';

import { readTraceContext, traceHeadersOf } from '../../../src/platform/telemetry/trace-context.ts';

const traceId = '0af7651916cd43dd8448eb211c80319c';
const spanId = 'b7ad6b7169203331';
const good = `00-${traceId}-${spanId}-01`;

test('a traceparent that is well formed counts, and its flags', () => {
  for (const [traceparent, flags] of [
    [good, 1],
    [`00-${traceId}-${spanId}-00`, 0],
    [`00-${traceId}-${spanId}-03`, 3],
    // Flags that mean nothing yet.
    [`00-${traceId}-${spanId}-ff`, 3],
    // A later version may have more.
    [`cc-${traceId}-${spanId}-01`, 1],
    [`01-${traceId}-${spanId}-01-what-the-future-brings`, 1],
  ] as const)
    assert.deepEqual(readTraceContext({ traceparent }), { traceId, spanId, flags, state: undefined }, traceparent);
});

test('any other counts as none', () => {
  for (const traceparent of [
    '',
    '00',
    traceId,
    `00-${traceId}-${spanId}`,
    `00-${traceId}-${spanId}-1`,
    `00-${traceId}-${spanId}-01-more`,
    `00-${traceId}-${spanId}-01-`,
    `01-${traceId}-${spanId}-01more`,
    `ff-${traceId}-${spanId}-01`,
    `00-${traceId.toUpperCase()}-${spanId}-01`,
    `00-${'0'.repeat(32)}-${spanId}-01`,
    `00-${traceId}-${'0'.repeat(16)}-01`,
    `00-${traceId.slice(1)}-${spanId}-01`,
    `00-${traceId}-${spanId}0-01`,
    `00_${traceId}_${spanId}_01`,
    `0x-${traceId}-${spanId}-01`,
    ` ${good}`,
    `${good} `,
    `${good}\r\nx: y`,
    // Sent twice, as Node joins it.
    `${good}, ${good}`,
  ])
    assert.equal(readTraceContext({ traceparent, tracestate: 'a=b' }), undefined, traceparent);
  assert.equal(readTraceContext({ tracestate: 'a=b' }), undefined);
});

test('a tracestate is sent on as it came, or not at all', () => {
  const many = (count: number): string => Array.from({ length: count }, (_, index) => `k${index}=v`).join(',');
  for (const [tracestate, expected] of [
    ['rojo=00f067aa0ba902b7,congo=t61rcWkgMzE', 'rojo=00f067aa0ba902b7,congo=t61rcWkgMzE'],
    ['rojo=1 , \tcongo=2,,', 'rojo=1,congo=2'],
    ['tenant@vendor=a b!~', 'tenant@vendor=a b!~'],
    [many(32), many(32)],
    [many(33), undefined],
    ['', undefined],
    [' , ', undefined],
    ['a', undefined],
    ['a=', undefined],
    ['=b', undefined],
    ['A=b', undefined],
    ['a=b,a=c', undefined],
    ['a=b=c', undefined],
    ['a=b\u00e9', undefined],
    ['a=b\r\nx: y', undefined],
    ['a=b\u0000', undefined],
    [`a=${'b'.repeat(257)}`, undefined],
    [`${'a'.repeat(257)}=b`, undefined],
    [`a=${'b'.repeat(256)},b=${'c'.repeat(253)}`, undefined],
  ] as const)
    assert.equal(readTraceContext({ traceparent: good, tracestate })?.state, expected, JSON.stringify(tracestate));
});

test('whatever is sent on is safe for a head, and is read as the same again', () => {
  const header = fc.oneof(
    fc.string(),
    fc.string({ unit: 'binary' }),
    fc.constant(good),
    fc.stringMatching(/^[0-9a-f-]{50,60}$/),
  );
  const state = fc.oneof(fc.string(), fc.stringMatching(/^([a-z0-9]{1,3}=[ -~]{1,5},?){1,8}$/));
  fc.assert(
    fc.property(header, state, (traceparent, tracestate) => {
      const read = readTraceContext({ traceparent, tracestate });
      if (read === undefined) return;
      const sent = traceHeadersOf(read);
      assert.match(sent.traceparent, /^00-[0-9a-f]{32}-[0-9a-f]{16}-0[0-3]$/);
      if (sent.tracestate !== undefined) assert.match(sent.tracestate, /^[\x20-\x7e]{1,512}$/);
      assert.deepEqual(readTraceContext({ ...sent }), read);
    }),
    {
      numRuns: 500,
      examples: [
        [good, 'a=b'],
        [good, 'a=b c'],
      ],
    },
  );
});
