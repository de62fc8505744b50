/** What is sent in OTLP is what it was made of, read by a reader of its own. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import fc from 'fast-check';

import { labelsOf, labelsText, printFigures } from '../../../src/platform/metrics/figures.ts';
import { Registry } from '../../../src/platform/metrics/registry.ts';
import { rejectedOf } from '../../../src/platform/telemetry/collector.ts';
import { exportRequest } from '../../../src/platform/telemetry/otlp-common.ts';
import { encodedMetrics } from '../../../src/platform/telemetry/otlp-metrics.ts';
import { writeSpans } from '../../../src/platform/telemetry/otlp-spans.ts';
import { ProtobufWriter } from '../../../src/platform/telemetry/protobuf.ts';
import { parseExposition } from '../metrics/exposition.ts';
import { pointsOf, spansOf } from '../../support/otlp-collector.ts';

/** As a double has them: to the microsecond. */
const nanoseconds = (ms: number): bigint => BigInt(Math.round(ms * 1_000)) * 1_000n;

const hex = (length: number) => fc.stringMatching(new RegExp(`^[0-9a-f]{${length}}$`));
const ms = fc.double({ min: 1.7e12, max: 1.9e12, noNaN: true });
const attribute = fc.tuple(
  fc.string({ maxLength: 300 }),
  fc.oneof(
    fc.string(),
    fc.string({ unit: 'binary' }),
    fc.boolean(),
    fc.maxSafeNat(),
    fc.double({ noNaN: true }).map((double) => ({ double })),
    fc.array(fc.string()),
  ),
);
const attributes = fc.uniqueArray(attribute, { selector: ([name]) => name, maxLength: 20 });
const span = fc.record({
  id: hex(16),
  parentId: fc.option(hex(16), { nil: undefined }),
  name: fc.string(),
  kind: fc.integer({ min: 1, max: 3 }),
  flags: fc.constantFrom(0x100, 0x300),
  startedMs: ms,
  endedMs: ms,
  attributes,
  events: fc.array(fc.record({ name: fc.string(), atMs: ms }), { maxLength: 3 }),
  isError: fc.boolean(),
});

/** Texts without lone surrogates stay what they are; -0 and 0 are one number. */
function plain(value: unknown): unknown {
  if (typeof value === 'string') return Buffer.from(value).toString();
  if (Array.isArray(value)) return value.map(plain);
  const number = typeof value === 'object' ? (value as { readonly double: number }).double : value;
  return number === 0 ? 0 : number;
}

test('spans of several requests arrive as they were, in one message', () => {
  fc.assert(
    fc.property(
      fc.array(fc.tuple(hex(32), fc.array(span, { maxLength: 8 })), { maxLength: 5 }),
      attributes,
      (requests, resource) => {
        const writer = new ProtobufWriter();
        const records = requests.map(([traceId, spans]) => {
          writer.reset();
          writeSpans(writer, { traceId, flags: 1 }, spans);
          return writer.finish();
        });
        const received = spansOf(exportRequest({ resource, version: '1.2.3' }, records));
        const expected = requests.flatMap(([traceId, spans]) => spans.map((each) => ({ traceId, ...each })));
        assert.equal(received.length, expected.length);
        received.forEach((arrived, index) => {
          const sent = expected[index]!;
          assert.deepEqual(
            [arrived.traceId, arrived.spanId, arrived.parentSpanId, arrived.kind, arrived.flags, arrived.isError],
            [sent.traceId, sent.id, sent.parentId ?? '', sent.kind, sent.flags | 1, sent.isError],
          );
          assert.deepEqual(
            [arrived.startedNs, arrived.endedNs],
            [nanoseconds(sent.startedMs), nanoseconds(sent.endedMs)],
          );
          assert.deepEqual(
            Object.entries(arrived.attributes).map(([name, value]) => [plain(name), plain(value)]),
            Object.entries(Object.fromEntries(sent.attributes)).map(([name, value]) => [plain(name), plain(value)]),
          );
          assert.deepEqual(
            arrived.events,
            sent.events.map(({ name, atMs }) => ({ atNs: nanoseconds(atMs), name: plain(name) })),
          );
          assert.equal(arrived.scope, 'tokenhouse');
          assert.equal(Object.keys(arrived.resource).length, resource.length);
        });
      },
    ),
    { numRuns: 100 },
  );
});

test('metrics are those of the page: the same names, labels, figures and kinds', () => {
  const registry = new Registry();
  const requests = registry.counter('requests_total', 'Requests.', ['model', 'status']);
  const seconds = registry.histogram('request_seconds', 'How long.', ['model'], [0.1, 1, 10]);
  registry.reading({ name: 'memory_bytes', type: 'gauge', labels: [], help: 'Memory.', across: 'sum' }, () => 17.5);
  registry.reading({ name: 'nothing', type: 'gauge', labels: ['a'], help: 'None.', across: 'sum' }, () => []);
  for (const model of ['plain', 'quoted "name", with = and , and \\ and\na line', '']) {
    requests(model, '200').add(3);
    requests(model, '500').add(2 ** 53);
    for (const value of [0.05, 0.5, 0.6, 100]) seconds(model).observe(value);
  }
  const figures = registry.figures();
  const period = { startedMs: 1.7e12, nowMs: 1.7e12 + 60_000 };
  const points = pointsOf(
    exportRequest({ resource: [['service.name', 's']], version: '1' }, [encodedMetrics(figures, period)]),
  );
  const page = parseExposition(printFigures(figures));
  assert.deepEqual([...new Set(points.map(({ name }) => name))], ['requests_total', 'request_seconds', 'memory_bytes']);
  for (const point of points) {
    const family = page.get(point.name)!;
    const kind = { sum: 'counter', gauge: 'gauge', histogram: 'histogram' }[point.type];
    assert.deepEqual([family.type, family.help], [kind, point.description]);
    assert.deepEqual([point.startedNs, point.atNs], [nanoseconds(period.startedMs), nanoseconds(period.nowMs)]);
    assert.equal(point.isMonotonic, kind === 'counter');
    const labels = Object.fromEntries(family.samples.map(({ labels: each }) => [JSON.stringify(each), each]));
    assert.ok(kind === 'histogram' || JSON.stringify(point.attributes) in labels, JSON.stringify(point.attributes));
  }
  const buckets = points.filter(({ type }) => type === 'histogram');
  assert.equal(buckets.length, 3);
  for (const { bounds, counts, count, value, unit } of buckets) {
    assert.deepEqual([bounds, counts, count, unit], [[0.1, 1, 10], [1n, 2n, 0n, 1n], 4n, 's']);
    assert.ok(Math.abs(value - 101.15) < 1e-9);
  }
  assert.deepEqual(
    points.filter(({ name }) => name !== 'request_seconds').map(({ value, unit }) => [value, unit]),
    [
      ...Array.from({ length: 3 }, () => [
        [3, ''],
        [2 ** 53, ''],
      ]).flat(),
      [17.5, 'By'],
    ],
  );
});

test('labels are read back as they were written', () => {
  fc.assert(
    fc.property(
      fc.dictionary(fc.stringMatching(/^[a-z_]{1,8}$/), fc.oneof(fc.string(), fc.stringMatching(/^["\\\n,=a]{0,6}$/))),
      (labels) => {
        const text = labelsText(Object.keys(labels), Object.values(labels));
        assert.deepEqual(Object.fromEntries(labelsOf(text)), { ...labels });
      },
    ),
  );
});

test('how many records a collector has not taken is read from its answer, and any other answer says none', () => {
  const answer = (...bytes: number[]): Uint8Array => Uint8Array.from(bytes);
  assert.equal(rejectedOf(answer(0x0a, 2, 0x08, 5)), 5);
  assert.equal(rejectedOf(answer(0x0a, 6, 0x12, 1, 0x61, 0x08, 0xac, 0x02)), 300);
  assert.equal(rejectedOf(answer(0x0a, 3, 0x12, 1, 0x61)), 0);
  assert.equal(rejectedOf(answer()), 0);
  fc.assert(fc.property(fc.uint8Array({ maxLength: 60 }), (bytes) => rejectedOf(bytes) >= 0));
});
