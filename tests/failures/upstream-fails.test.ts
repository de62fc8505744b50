/** Every fault of an upstream that fails a request, streamed and whole: code, ending, charge 0 (reliability U4 to U12). */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { verifyAndDispose } from '../endings/endings-service.ts';
import type { Upstream, UpstreamHandler } from '../support/upstream.ts';
import { upstreamFaults } from './upstream-faults.ts';
import {
  answerWell,
  askFor,
  assertAnswered,
  assertFailed,
  assertReported,
  remote,
  serviceBefore,
  settled,
  upstreamThat,
} from './upstream-service.ts';

/** What the broken upstream does with the next requests. */
let play: UpstreamHandler = () => {};
const broken: Upstream = await upstreamThat((exchange) => play(exchange));
const sound: Upstream = await upstreamThat((exchange) => answerWell(exchange));
/** A model for each fault: one that had failed more often would be left out. */
const pairs = new Map(upstreamFaults.map((fault, index) => [fault, `pair${index}`]));
const service = serviceBefore([
  remote('alone', [broken.url]),
  ...[...pairs.values()].map((pair) => remote(pair, [broken.url, sound.url])),
]);
before(() => service.start());
after(() => verifyAndDispose(service).finally(() => Promise.all([broken.close(), sound.close()])));

for (const fault of upstreamFaults) {
  for (const stream of [true, false]) {
    test(`${fault.id}: ${fault.name}, ${stream ? 'streamed' : 'whole'}`, async () => {
      play = fault.play;
      await settled(service, async (ledger) => {
        const seen = broken.exchanges.length;
        const answer = await askFor(service, 'alone', stream);
        await assertFailed(ledger, answer, { ...fault, stream });
        const asked = broken.exchanges.slice(seen).filter(({ method }) => method === 'POST');
        const generations = asked.filter(({ path }) => !path.endsWith('/tokenize'));
        assert.equal(generations.length, 1, 'neither asked again nor led elsewhere');
        await assertReported(service, 'alone-0', fault.incident, fault.upstreamStatus);
      });
    });
  }
}

describe('another backend', () => {
  test('takes over whatever failed before the first text, for one charge', async () => {
    await settled(service, async (ledger) => {
      for (const fault of upstreamFaults.filter(({ delivered }) => delivered === 0)) {
        play = fault.play;
        for (const stream of [true, false]) {
          const answer = await askFor(service, pairs.get(fault)!, stream);
          const row = await assertAnswered(ledger, answer, { text: 'Hello', stream });
          assert.deepEqual(
            [row.backend, row.promptTokens, row.completionTokens],
            [`${pairs.get(fault)}-1`, 11, 2],
            fault.name,
          );
        }
      }
    });
  });

  test('is never asked after the first text', async () => {
    await settled(service, async (ledger) => {
      for (const fault of upstreamFaults.filter(({ delivered }) => delivered > 0)) {
        play = fault.play;
        const seen = sound.exchanges.length;
        for (const stream of [true, false]) {
          const row = await assertFailed(ledger, await askFor(service, pairs.get(fault)!, stream), {
            ...fault,
            stream,
          });
          assert.equal(row.backend, `${pairs.get(fault)}-0`, fault.name);
        }
        const asked = sound.exchanges.slice(seen).filter(({ path }) => path.endsWith('/completions'));
        assert.deepEqual(asked, [], fault.name);
      }
    });
  });
});
