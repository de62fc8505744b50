/**
 * Five times the load that the service carries, and back (reliability §3.1 "overload", §6 row 9): it goes on serving nearly
 * as much as it can, refuses the rest quickly and in words, cuts nothing that runs, and is itself again ten seconds later.
 * The load is open: requests are due at their times, whatever becomes of those before them.
 *
 * Twice: where the backend's places are what runs out, and where it is the service's own processor. In the second case a
 * refusal costs a fifth of an answer; a connection that was refused rests for a second, so that those who ask again at once
 * do not take the processor from those who are served.
 */
import assert from 'node:assert/strict';
import { execFile, spawn, spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import type { TestContext } from 'node:test';
import { promisify } from 'node:util';

import { freePort } from '../../../bench/contender.ts';
import type { LoadResult, Quantiles } from '../../../bench/load.ts';
import { allowedCores, onCore } from '../../../bench/processes.ts';
import { requestBytes } from '../../../bench/scenarios.ts';
import type { Scenario } from '../../../bench/scenarios.ts';
import { TestLedger } from '../../support/test-ledger.ts';
import { ask } from '../../support/http-client.ts';
import { TestService, until } from '../../support/service.ts';

const load = process.env['TOKENHOUSE_TEST_LOAD'];
const upstreamProgram = process.env['TOKENHOUSE_TEST_UPSTREAM'];
assert.ok(load !== undefined && upstreamProgram !== undefined, 'start this suite with: npm run suite overload');

/** The service has one core to itself and everything else the other, where there are two. */
const cores = spawnSync('taskset', ['--version']).status === 0 ? allowedCores() : [];
const [serviceCore, otherCore] = cores.length > 1 ? cores : [undefined, undefined];

/** The aim is twice the wait of the normal load; ten times that, and never below what a pause of the machine takes. */
const firstTokenTimesMax = 20;
const pauseMs = 2_000;
/** The part of the peak: a machine that it shares may be a quarter slower a minute later. */
const normalShare = 0.6;
const recoveryMs = 10_000;

interface OverloadResult extends LoadResult {
  readonly refused: number;
  /** Connections closed before an answer began. */
  readonly lost: number;
  readonly refusalUs: Quantiles;
}

interface Case {
  readonly name: string;
  readonly scenario: Omit<Scenario, 'name' | 'connections' | 'seconds'>;
  /** Places at the backend. */
  readonly places: number;
  /** Connections that find out what the service can carry. */
  readonly crowd: number;
  /** Requests that may wait for a place. */
  readonly queue: number;
  /** Share of the peak that is still served under five times the load. */
  readonly goodputShareMin: number;
  /** `undefined`: all connections of the generator are in use, and it measures its own line. */
  readonly refusalP99MsMax: number | undefined;
}

const cases: readonly Case[] = [
  {
    name: "the backend's places",
    scenario: { mode: 'p', tokens: 32, paceMs: 10 },
    places: 32,
    crowd: 32,
    queue: 16,
    goodputShareMin: 0.9,
    refusalP99MsMax: pauseMs, // The aim is 50 ms: the slowest hundredth of them may meet a pause.
  },
  {
    name: "the service's processor",
    scenario: { mode: 'f', tokens: 8, paceMs: 0 },
    places: 4_000,
    crowd: 64,
    queue: 0,
    goodputShareMin: 0.5, // About the peak on a quiet machine.
    refusalP99MsMax: undefined,
  },
];

for (const { name, scenario, places, crowd, queue, goodputShareMin, refusalP99MsMax } of cases) {
  test(`five times what ${name} can carry: goodput stays, refusals are quick, nothing is cut, and it recovers`, async (t) => {
    const service = await start(t, places + runningStreams, queue);
    const ledger = new TestLedger(service);
    const request = requestBytes(
      { name: 'overload', connections: 0, seconds: 0, ...scenario },
      { key: service.key, model: 'bench' },
    );
    const requestFile = join(service.folder, 'request');
    writeFileSync(requestFile, request);
    const play = (connections: number, seconds: number, rate?: number): Promise<OverloadResult> =>
      runLoad(service, requestFile, scenario.tokens, connections, seconds, rate);
    const perSecond = ({ good, seconds }: OverloadResult): number => good / seconds;

    await play(crowd, 4); // Code that is new to V8 is slow.
    const closed = await play(crowd, 6);
    const peak = perSecond(closed);
    const once = normalShare * peak;
    const normal = await play(1_000, 8, once);
    // What is left of the load before would be counted as one of them.
    await until(async () => (await ledger.openRequests()) === 0, 60_000);
    const streams = Array.from({ length: runningStreams }, () => acceptedStream(service));
    const refusals: string[] = [];
    for (const stream of streams) void stream.then(({ status, body }) => status === 200 || refusals.push(body));
    await until(async () => {
      assert.deepEqual(refusals, []);
      return (await ledger.openRequests()) >= runningStreams;
    }, 60_000);
    const flooded = await play(1_000, 15, 5 * peak);
    // The aim is 10 s; a machine that has other work in one of them gets ten times as long.
    let recovered: OverloadResult;
    let tries = 0;
    do {
      await play(1_000, recoveryMs / 1_000, once);
      recovered = await play(1_000, 8, once);
    } while (perSecond(recovered) < 0.9 * perSecond(normal) && ++tries < 5);

    const figures = [
      ['peak, closed loop', peak, closed],
      ['1 ×', perSecond(normal), normal],
      ['5 ×', perSecond(flooded), flooded],
      ['1 × again', perSecond(recovered), recovered],
    ] as const;
    console.log(`overload of ${name}: due at 1 × ${once.toFixed(0)}/s, at 5 × ${(5 * peak).toFixed(0)}/s`);
    for (const [what, goodput, result] of figures) console.log(`  ${what.padEnd(18)} ${inWords(goodput, result)}`);

    for (const result of [normal, flooded, recovered]) {
      assert.equal(result.bad, 0, `no 5xx, nothing cut: ${result.complaints}`);
      assert.equal(result.hung, 0);
    }
    assert.ok(perSecond(flooded) < 4 * peak, 'it was more than the service can carry');
    assert.ok(perSecond(flooded) >= goodputShareMin * peak, `${perSecond(flooded)} of ${peak} a second`);
    if (refusalP99MsMax !== undefined) {
      assert.ok(flooded.refusalUs.p99 < refusalP99MsMax * 1_000, `refusals took ${flooded.refusalUs.p99} µs`);
      const waitMs = (queue / peak) * 1_000;
      const firstTokenMsMax = Math.max(firstTokenTimesMax * (normal.firstTokenUs.p99 / 1_000), pauseMs) + waitMs;
      assert.ok(
        flooded.firstTokenUs.p99 / 1_000 < firstTokenMsMax,
        `${flooded.firstTokenUs.p99} µs to the first token`,
      );
    }
    assert.ok(perSecond(recovered) >= 0.9 * perSecond(normal), 'it is itself again');
    for (const [index, stream] of (await Promise.all(streams)).entries())
      assert.ok(
        stream.body.endsWith('data: [DONE]\n\n') && stream.body.includes(`" t${longTokens - 1}"`),
        `stream ${index}`,
      );

    await until(async () => (await ledger.openRequests()) === 0, 60_000);
    await ledger.verify({ owned: true });
    assert.equal(await service.stop(), 0);
    await service.verify();
  });
}

/** Streams that run through all of it. */
const runningStreams = 8;
const longTokens = 1_000;
const longPaceMs = 30;

/** Asked again while the service is not yet itself after the load before, as clients do. */
async function acceptedStream(service: TestService): ReturnType<typeof longStream> {
  let answer: Awaited<ReturnType<typeof longStream>>;
  await until(async () => (answer = await longStream(service)).status !== 429, 60_000);
  return answer!;
}

function longStream(service: TestService) {
  const scenario: Scenario = {
    name: 'long',
    mode: 'p',
    tokens: longTokens,
    paceMs: longPaceMs,
    connections: 1,
    seconds: 1,
  };
  const body = requestBytes(scenario, { key: service.key, model: 'bench' }).split('\r\n\r\n')[1]!;
  const longer = JSON.stringify({ ...(JSON.parse(body) as object), max_tokens: 2 * longTokens });
  return ask({
    url: service.url,
    method: 'POST',
    path: '/v1/chat/completions',
    headers: { authorization: `Bearer ${service.key}`, 'content-type': 'application/json' },
    body: longer,
    agent: false,
    timeoutMs: 300_000,
  });
}

async function runLoad(
  service: TestService,
  requestFile: string,
  tokens: number,
  connections: number,
  seconds: number,
  rate = 0,
): Promise<OverloadResult> {
  const { port } = new URL(service.url);
  const parameters = ['-p', port, '-f', requestFile, '-c', connections, '-t', seconds, '-e', tokens, '-r', rate, '-o'];
  const [command, ...rest] = onCore([load!, ...parameters.map(String)], otherCore);
  const { stdout, stderr } = await promisify(execFile)(command!, rest, { timeout: (seconds + 60) * 1_000 });
  return { ...(JSON.parse(stdout) as OverloadResult), complaints: stderr.trim() };
}

function inWords(goodput: number, result: OverloadResult): string {
  const good = `${goodput.toFixed(0).padStart(6)}/s good`;
  const ms = (us: number): string => `${(us / 1_000).toFixed(1)} ms`;
  const { firstTokenUs, refusalUs, refused, lost, bad, hung, started } = result;
  return (
    `${good}, first token p50 ${ms(firstTokenUs.p50)} p99 ${ms(firstTokenUs.p99)}; ${started} started, ` +
    `${refused} refused p50 ${ms(refusalUs.p50)} p99 ${ms(refusalUs.p99)}; ${lost} lost, ${bad} bad, ${hung} hung`
  );
}

async function start(t: TestContext, places: number, queue: number): Promise<TestService> {
  const upstreamPort = await freePort();
  const [command, ...rest] = onCore([upstreamProgram!, String(upstreamPort)], otherCore);
  const upstream = spawn(command!, rest, { stdio: 'ignore' });
  t.after(() => upstream.kill('SIGKILL'));
  await until(() =>
    fetch(`http://127.0.0.1:${upstreamPort}/stats`).then(
      () => true,
      () => false,
    ),
  );
  const service = new TestService({
    firstCreditCents: '100000000',
    limits:
      '  concurrency_per_account_max: 100000\n  shed_large_bodies_lag_seconds: 0.05\n  shed_new_work_lag_seconds: 0.1',
    config: `models:
  - id: bench
    context_length: 131072
    max_output_tokens: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends:
      - { engine: openai, flavor: vllm, url: "http://127.0.0.1:${upstreamPort}/v1", max_concurrency: ${places}, queue: ${queue} }
`,
  });
  t.after(() => service.dispose());
  await service.start();
  // Its threads too; those that it starts later inherit it.
  if (serviceCore !== undefined) spawnSync('taskset', ['-apc', String(serviceCore), String(service.pid)]);
  return service;
}
