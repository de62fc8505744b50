/**
 * Mixed load with faults for minutes (reliability §6 row 27, S11, invariants I1 to I5, I8, I9): at the end nothing has grown,
 * nothing hangs, and every request is in the log once. TOKENHOUSE_SOAK_MINUTES says how long; the default is for CI.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { test } from 'node:test';

import { TestLedger } from '../../support/test-ledger.ts';
import type { HeapReport } from '../../support/heap-probe.ts';
import { heapOf, heapProbe } from '../../support/heap.ts';
import { mulberry32 } from '../../support/random.ts';
import { TestService, until } from '../../support/service.ts';
import { slowness } from '../../support/busy.ts';
import { quantileOf, slopeOf, vitalsOf } from '../../support/vitals.ts';
import { Load } from './load.ts';
import type { LoadResult } from './load.ts';
import { built } from '../../support/built.ts';

const minutes = Number(process.env['TOKENHOUSE_SOAK_MINUTES'] ?? 5);
const clients = 16;
const bodyBytesMax = 1_000_000;
/** Log lines of 270 characters that are written while nobody reads the log: more than its queue of 4 Mi characters holds. */
const floodLines = 24_000;

/**
 * The aim is 1 MB an hour; the bound is ten times that, and a run of minutes cannot tell less than its noise. A slower machine has
 * warmed up less by then: it has answered fewer requests.
 */
const rssGrowthPerHourMax = 10e6;
const rssNoise = 40e6 * slowness;
/** Heap after a collection, between the middle of the run and its end. 5 MB are 100 bytes for each request of five minutes. */
const heapGrowthMax = 0.05;
const heapNoise = 5e6;

const config = (upstreamUrl: string): string => `models:
  - id: demo
    context_length: 16384
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends:
      - engine: scripted
        scripts:
          - when: { last_text: instant }
            say: [ { text: "one two three" } ]
          - when: { last_text: tools }
            say: [ { text: "let me see" }, { tool_call: { name: look, arguments: { at: "it" } } } ]
          - when: { last_text: long }
            say: [ { text: [ "word " ] } ]
            repeat: 4000
            pace_ms: 2
          - when: { last_text: bulk }
            say: [ { text: [ "word " ] } ]
            repeat: 3000
          - when: { last_text: flood }
            say: [ { text: [ "${'w'.repeat(4_000)} " ] } ]
            repeat: 5000
          - when: { last_text: fails }
            say: []
            fault: { after_tokens: 0, type: error, code: backend_http_error }
          - when: { last_text: fails later }
            say: [ { text: "one two three" } ]
            fault: { after_tokens: 2, type: error, code: backend_timeout }
          - when: { last_text: cut }
            say: [ { text: "one two three" } ]
            fault: { after_tokens: 2, type: cut }
          - say: [ { text: [ "word " ] } ]
            repeat: 20
            pace_ms: 5
  - id: remote
    context_length: 16384
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ { engine: openai, flavor: openai, url: "${upstreamUrl}", max_concurrency: 256 } ]
  - id: dear
    context_length: 16384
    pricing: { input_cents_per_million: 1000000000, output_cents_per_million: 1000000000 }
    backends: [ { engine: scripted, scripts: [ { say: [] } ] } ]
`;

interface Sample {
  readonly hours: number;
  readonly rssBytes: number;
  readonly isStalled: boolean;
}

interface HeapSample extends HeapReport {
  readonly hours: number;
  readonly isStalled: boolean;
}

test(`${minutes} minutes of mixed load: nothing grows, nothing hangs, every request is billed and logged once`, async (t) => {
  const seed = Number(process.env['TOKENHOUSE_SOAK_SEED'] ?? Date.now() % 2 ** 32);
  t.diagnostic(`seed ${seed}`);
  const upstream = await startUpstream(seed);
  t.after(() => upstream.stop());
  const service = new TestService({
    config: config(upstream.url),
    firstCreditCents: '1000000',
    limits:
      '  body_bytes_max: 1000000\n  concurrency_per_account_max: 1000\n  first_token_timeout_seconds: 3\n' +
      '  stream_idle_timeout_seconds: 3\n  reader_stall_timeout_seconds: 2',
    environment: heapProbe,
  });
  t.after(() => service.dispose());
  await service.start();
  const heap = (): Promise<HeapReport> => heapOf(service);
  for (const model of ['demo', 'remote'])
    await (await service.chat({ model, messages: [{ role: 'user', content: 'hi' }] })).text();
  const before = { vitals: vitalsOf(service.pid), heap: await heap() };

  const startedAtMs = performance.now();
  const hours = (): number => (performance.now() - startedAtMs) / 3_600_000;
  const samples: Sample[] = [];
  const heaps: HeapSample[] = [];
  let isStalled = false;
  const sampling = setInterval(
    () => samples.push({ hours: hours(), rssBytes: vitalsOf(service.pid).rssBytes, isStalled }),
    1_000,
  );
  t.after(() => clearInterval(sampling));
  const load = new Load({ url: service.url, key: service.key, random: mulberry32(seed), clients, bodyBytesMax });
  t.after(() => load.stop());
  /** The heap is measured while nothing runs, so that it does not matter what happens to run. */
  const steady = async (share: number): Promise<void> => {
    const end = hours() + (minutes / 60) * share;
    while (hours() < end) {
      await new Promise((resolve) => setTimeout(resolve, Math.min(10_000, (minutes * 60_000) / 20)));
      await load.pause();
      heaps.push({ hours: hours(), isStalled, ...(await heap()) });
      load.resume();
    }
  };

  await steady(0.25);
  const warmAtHours = hours();
  await steady(0.3);
  // The reader of the log stops (S11): the service goes on, its queue is bounded, and what it drops it counts.
  isStalled = true;
  service.stallOutput();
  await load.flood(floodLines);
  await steady(0.1);
  const stalledRss = Math.max(...samples.filter((sample) => sample.isStalled).map(({ rssBytes }) => rssBytes));
  service.resumeOutput();
  await until(() => service.output.includes('"log_lines_dropped"'), 60_000);
  isStalled = false;
  await steady(0.35);
  await load.stop();
  clearInterval(sampling);

  report(samples, heaps, load.result, warmAtHours);
  const { result } = load;
  assert.deepEqual(result.faults, []);
  assertFlat(samples, heaps, warmAtHours, stalledRss);
  await assertBaseline(service, before, heap);
  await assertBilled(service, result);
  assert.equal(await service.stop(), 0);
  assertLoggedOnce(service, result);
  await service.verify();
});

function assertFlat(samples: readonly Sample[], heaps: readonly HeapSample[], warmAtHours: number, stalledRss: number) {
  const warm = samples.filter((sample) => sample.hours > warmAtHours && !sample.isStalled);
  const window = warm.at(-1)!.hours - warm[0]!.hours;
  // The stalled log leaves its high-water mark, which has a bound of its own below: what grows is what grows on either side.
  const stallAtHours = samples.find((sample) => sample.isStalled)!.hours;
  const growthOf = (points: readonly { readonly x: number; readonly y: number }[]): number =>
    [points.filter(({ x }) => x < stallAtHours), points.filter(({ x }) => x > stallAtHours)]
      .map((side) => (side.length < 2 ? 0 : slopeOf(side) * (side.at(-1)!.x - side[0]!.x)))
      .reduce((sum, each) => sum + each);
  const growth = growthOf(warm.map(({ hours, rssBytes }) => ({ x: hours, y: rssBytes })));
  assert.ok(
    growth < Math.max(rssGrowthPerHourMax * window, rssNoise),
    `RSS grew by ${growth} bytes in ${window} hours`,
  );

  const warmHeaps = heaps.filter(({ hours, isStalled }) => hours > warmAtHours && !isStalled);
  const bytesOf = ({ heapBytes, externalBytes }: HeapReport): number => heapBytes + externalBytes;
  const middle = quantileOf(warmHeaps.map(bytesOf), 0.5);
  const heapGrowth = growthOf(warmHeaps.map((heap) => ({ x: heap.hours, y: bytesOf(heap) })));
  assert.ok(
    warmHeaps.length > 4 && heapGrowth < Math.max(middle * heapGrowthMax, heapNoise),
    `heap grew by ${heapGrowth}`,
  );

  // The queue of the log is 4 Mi characters, and Node's stream may hold as much once more as bytes.
  const calm = quantileOf(
    warm.map(({ rssBytes }) => rssBytes),
    0.5,
  );
  assert.ok(stalledRss < calm + 100e6, `${stalledRss} bytes while the log was stalled, ${calm} otherwise`);
}

/** Invariant I8, when the clients are gone. */
async function assertBaseline(
  service: TestService,
  before: { readonly vitals: ReturnType<typeof vitalsOf>; readonly heap: HeapReport },
  heap: () => Promise<HeapReport>,
): Promise<void> {
  const ledger = new TestLedger(service);
  await until(async () => (await ledger.openRequests()) === 0, 30_000);
  const { fds, sockets, children } = before.vitals;
  let now = vitalsOf(service.pid);
  // Kept-alive connections to the upstream end a few seconds after the last request.
  await until(() => (now = vitalsOf(service.pid)).fds <= fds && now.sockets <= sockets, 90_000).catch(() =>
    assert.fail(`${JSON.stringify(now)} after the load, ${JSON.stringify(before.vitals)} before`),
  );
  assert.equal(now.children, children);
  const kinds = (resources: readonly string[], kind: string): number =>
    resources.filter((name) => name === kind).length;
  const after = await heap();
  for (const kind of new Set(after.resources))
    assert.ok(
      kinds(after.resources, kind) <= kinds(before.heap.resources, kind),
      `${kind}: ${after.resources.join(' ')} after the load, ${before.heap.resources.join(' ')} before`,
    );
}

/** Invariants I1 to I5: every complete answer has one row with the usage that was shown. */
async function assertBilled(service: TestService, { usages }: LoadResult): Promise<void> {
  const ledger = new TestLedger(service);
  const rows = await ledger.everyRow();
  const byId = new Map(rows.map((row) => [row.publicId, row]));
  assert.equal(byId.size, rows.length, 'a request has one row');
  assert.ok(usages.size > 20 * minutes, `only ${usages.size} complete answers`);
  for (const [id, { promptTokens, completionTokens }] of usages) {
    const row = byId.get(id);
    assert.deepEqual(
      [row?.ending, row?.promptTokens, row?.completionTokens, row?.costMicrocents],
      ['finished', promptTokens, completionTokens, BigInt(promptTokens * 5 + completionTokens * 20)],
      id,
    );
  }
  await ledger.verify({ owned: true });
}

function assertLoggedOnce(service: TestService, { answered, unsure, unnamed }: LoadResult): void {
  const lines = new Map<string, number>();
  let dropped = 0;
  for (const line of service.log) {
    if (line['event'] === 'log_lines_dropped') dropped += Number(line['count']);
    const id = line['request_id'];
    if (typeof id === 'string') lines.set(id, (lines.get(id) ?? 0) + 1);
  }
  assert.deepEqual(
    [...unnamed].filter((id) => lines.has(id)),
    [],
    'the id of a client that asks for zero data retention is not kept',
  );
  const missing = [...answered].filter((id) => !lines.has(id));
  assert.deepEqual([...lines].filter(([, count]) => count > 1).slice(0, 10), [], 'no request has two lines');
  console.log(`log: ${lines.size} requests, ${dropped} lines dropped while nobody read, ${unsure.size} unsure`);
  assert.ok(dropped > 0, 'the log was stalled for long enough to fill its queue');
  assert.ok(missing.length <= dropped, `${missing.length} lines are missing, ${dropped} were dropped: ${missing[0]}`);
}

/** RSS for each minute, the heap after collections, and what the clients did. */
function report(
  samples: readonly Sample[],
  heaps: readonly HeapSample[],
  { counts }: LoadResult,
  warmAtHours: number,
): void {
  const megabytes = (bytes: number): string => (bytes / 1e6).toFixed(1).padStart(7);
  console.log('minute  RSS min, median, max (MB)   heap after collection');
  for (let minute = 0; minute <= Math.floor(samples.at(-1)!.hours * 60); minute++) {
    const inMinute = <Kind extends { readonly hours: number }>(list: readonly Kind[]): readonly Kind[] =>
      list.filter(({ hours }) => Math.floor(hours * 60) === minute);
    const rss = inMinute(samples).map(({ rssBytes }) => rssBytes);
    const heap = inMinute(heaps).map(({ heapBytes, externalBytes }) => heapBytes + externalBytes);
    const stalled = inMinute(samples).some(({ isStalled }) => isStalled) ? '  log stalled' : '';
    const figures = [Math.min(...rss), quantileOf(rss, 0.5), Math.max(...rss), quantileOf(heap, 0.5)];
    console.log(`${String(minute + 1).padStart(6)} ${figures.map(megabytes).join(' ')}${stalled}`);
  }
  const warm = samples.filter((sample) => sample.hours > warmAtHours && !sample.isStalled);
  const slope = slopeOf(warm.map(({ hours, rssBytes }) => ({ x: hours, y: rssBytes })));
  const warmHeaps = heaps.filter(({ hours, isStalled }) => hours > warmAtHours && !isStalled);
  const heapSlope = slopeOf(warmHeaps.map((heap) => ({ x: heap.hours, y: heap.heapBytes + heap.externalBytes })));
  console.log(`after warm-up: RSS ${(slope / 1e6).toFixed(1)} MB/h, heap ${(heapSlope / 1e6).toFixed(1)} MB/h`);
  console.log([...counts].map(([name, count]) => `${name} ${count}`).join(', '));
}

/** The misbehaving server, in a process of its own. */
async function startUpstream(seed: number): Promise<{ readonly url: string; stop(): void }> {
  const program = built('tests/suites/soak/upstream-process.ts');
  const child = spawn(process.execPath, [program, String(seed)], { stdio: ['ignore', 'pipe', 'inherit'] });
  let said = '';
  child.stdout.on('data', (text: Buffer) => (said += text.toString()));
  await until(() => said.includes('\n'), 30_000);
  return {
    url: said.trim(),
    stop: () => void child.kill('SIGKILL'),
  };
}
