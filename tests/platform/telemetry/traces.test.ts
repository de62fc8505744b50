/** Which requests are recorded, and what those behind us are sent. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { RecordedTrace } from '../../../src/platform/telemetry/request-trace.ts';
import { readTraceContext } from '../../../src/platform/telemetry/trace-context.ts';
import { beginTrace } from '../../../src/platform/telemetry/traces.ts';

const sink = { take: () => {} };
const parent = (flags: string): { readonly traceparent: string } => ({
  traceparent: `00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-${flags}`,
});

test('a share of the requests is recorded, and all of a caller that records', () => {
  const requests = 5_000;
  for (const samplingRatio of [0, 0.1, 0.5, 1]) {
    const recording = { sink, samplingRatio };
    const ids = new Set<string>();
    let recorded = 0;
    for (let index = 0; index < requests; index++) {
      const trace = beginTrace({}, recording)!;
      const sent = readTraceContext({ ...trace.headers })!;
      const isRecorded = trace instanceof RecordedTrace;
      assert.equal(sent.flags, isRecorded ? 1 : 0);
      ids.add(sent.traceId);
      if (isRecorded) recorded++;
    }
    assert.equal(ids.size, requests);
    // Five standard deviations.
    const likely = 5 * Math.sqrt(requests * samplingRatio * (1 - samplingRatio));
    assert.ok(Math.abs(recorded - samplingRatio * requests) <= likely, `${recorded} of ${samplingRatio}`);
    assert.ok(beginTrace(parent('01'), recording) instanceof RecordedTrace);
    assert.ok(!(beginTrace(parent('00'), recording) instanceof RecordedTrace));
  }
});

test('where nothing is recorded, a request has a trace only if it brought one', () => {
  assert.equal(beginTrace({}, undefined), undefined);
  assert.equal(beginTrace({ traceparent: 'nonsense' }, undefined), undefined);
  assert.deepEqual(beginTrace({ ...parent('01'), tracestate: 'a=b' }, undefined)?.headers, {
    ...parent('01'),
    tracestate: 'a=b',
  });
});

test('the spans of a request have ids of their own', () => {
  const taken: string[] = [];
  const counting = {
    take: (_: unknown, spans: readonly { readonly id: string }[]) => taken.push(...spans.map(({ id }) => id)),
  };
  const trace = beginTrace({}, { sink: counting, samplingRatio: 1 })!;
  for (let index = 0; index < 300; index++) trace.step('queue')!.end();
  trace.end({
    method: 'POST',
    route: '/',
    operation: 'chat',
    requestId: 'req_000000000000',
    accountId: undefined,
    keyId: undefined,
    figures: {
      api: 'chat',
      model: '',
      streamed: false,
      status: 500,
      code: 'internal_error',
      answer: undefined,
      ownMs: 1,
    },
  });
  assert.equal(taken.length, 301);
  assert.equal(new Set(taken).size, 301);
  assert.ok(taken.every((id) => /^[0-9a-f]{16}$/.test(id)));
});
