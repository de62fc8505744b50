/**
 * Three replicas with 8 slots each, a conversation and waves of requests, without and with batches: batches get what is idle. The times of
 * first tokens are printed; `npm run bench idle-slots` measures them.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { BatchClient, chatLine } from '../../support/batch-client.ts';
import { PacedServer, playArrivals, promptOf, quantile, type Arrival } from '../../support/paced-server.ts';
import { mulberry32 } from '../../support/random.ts';
import { replicasOf } from './replica-service.ts';
import { PostgresServer } from './server.ts';

const slots = 8;
const seconds = 30;
/** Between two waves. */
const waveMs = 10_000;
const waveRequests = 12;
/** 500 ms until the first token, 2 s in all. */
const work = { firstMs: 500, words: 3 };

let server: PostgresServer;
let paced: PacedServer;
before(async () => {
  [server, paced] = await Promise.all([PostgresServer.start(), PacedServer.start(500)]);
});
after(() => server.dispose().finally(() => paced.close()));

/** A third of the slots at all times, and waves that take half of them for a second. */
function arrivals(): readonly Arrival[] {
  const random = mulberry32(3);
  const times: number[] = [];
  for (let atMs = 0; atMs < seconds * 1_000; atMs += (-2_000 * Math.log(1 - random())) / slots) times.push(atMs);
  for (let atMs = waveMs / 2; atMs < seconds * 1_000; atMs += waveMs)
    for (let wave = 0; wave < waveRequests; wave++) times.push(atMs);
  return times.toSorted((a, b) => a - b).map((atMs) => ({ ...work, atMs }));
}

test('batches use what is idle of three replicas, and lines that give way cost nothing', async (t) => {
  const { replicas, ledger } = await replicasOf(t, server, {
    models: paced.models(slots, 100),
    environment: { TOKENHOUSE_SERVER__LIMITS__CONCURRENCY_PER_ACCOUNT_MAX: '500' },
  });
  const play = () => playArrivals(paced, replicas, arrivals(), slots * replicas.length);
  // The first requests of a process compile what they use.
  const warm = Array.from({ length: 15 }, () => ({ ...work, atMs: 0 }));
  await playArrivals(paced, replicas, warm, slots);
  const alone = await play();
  const client = new BatchClient(replicas[0]!);
  const lines = Array.from({ length: 1_000 }, (_, index) => chatLine(`line-${index}`, promptOf('line', work)));
  const { id } = await client.of(lines);
  await client.when(id, ({ request_counts: counts }) => counts.completed > 20);
  const beside = await play();
  await client.send(`/batches/${id}/cancel`, { method: 'POST' });
  await client.when(id, ({ status }) => status === 'cancelled', 60_000);
  const share = (ms: number): number => ms / beside.idleMs;
  const [used, answered] = [share(beside.soldMs), share(beside.soldMs - beside.thrownAwayMs)];
  const rows = await ledger.everyRow();
  const stopped = rows.filter(({ ending }) => ending === 'cancelled');
  const said = JSON.stringify({
    firstTokens: [alone, beside].map(({ answers }) =>
      [0.5, 0.99].map((part) =>
        quantile(
          answers.map(({ firstTokenMs }) => firstTokenMs),
          part,
        ),
      ),
    ),
    ...{ used, answered, stopped: stopped.length },
  });
  t.diagnostic(said);
  for (const { costMicrocents } of stopped) assert.equal(costMicrocents, 0n);
  // Far below what is reached: on a busy machine a slot waits for the database between two lines.
  assert.ok(answered > 0.2, said);
  assert.ok(used > 0.3, said);
  await replicas[0]!.verify();
});
