/** Workers of one machine tell each other what they know of backends (docs/decisions/039-fleets-of-replicas.md). */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TestService } from '../../support/service.ts';
import { namedPrompt, TwoServers } from '../../support/two-servers.ts';
import { at, hasHeardAll, send, serving, whole, workersOf } from './workers.ts';

test('a prompt goes to the server that has its beginning, whichever worker takes it', async () => {
  const servers = await TwoServers.start();
  const service = new TestService({ workers: 2, config: servers.model });
  try {
    await service.start();
    await serving(service, 2);
    const [one, two] = workersOf(service) as [number, number];
    const askAt = async (worker: number, name: string): Promise<number> => {
      const sent = await at(service, worker, () =>
        send(service, namedPrompt(name), { headers: 'connection: close\r\n' }),
      );
      const text = await whole(sent);
      assert.equal(sent.client.status, 200, text);
      return servers.serverOf(name);
    };
    // Workers find each other a moment after they serve, and what one did before that it does not report.
    await hasHeardAll(service, (turn) => askAt(one, `before-${turn}`));
    // The first of each worker goes to the first server, and the next to the second, unless it knows better.
    const names = ['amber', 'birch', 'cedar', 'dune'];
    const homes = new Map<string, number>();
    for (const name of names) homes.set(name, await askAt(one, name));
    assert.deepEqual([...new Set(homes.values())].toSorted(), [0, 1], 'both servers have some');
    // The other has nothing to report, so it is the only one that hears.
    await hasHeardAll(service, (turn) => askAt(one, `noise-${turn}`));
    servers.forget();
    for (const name of names.toReversed())
      assert.equal(await askAt(two, name), homes.get(name), `${name} stays where it is`);
  } finally {
    await service.dispose();
    await servers.close();
  }
});
