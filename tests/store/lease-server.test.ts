/** The parent of workers as the lease server of each of them. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { usageValues } from '../../src/store/reports/usage-columns.ts';
import { openLedgerServer } from '../../src/store/workers/ledger-server.ts';
import type { OwnerPort, WorkerPort } from '../../src/store/workers/protocol.ts';
import { closeAfter, differencesOf, temporaryFolder, uuid } from './fixture.ts';
import { describeLeaseServer, type LeaseClient } from './lease-server-contract.ts';

describeLeaseServer('workers', async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  const { store, serve } = await openLedgerServer({ file, onFatal: (error) => assert.fail(error) });
  closeAfter(t, store);
  return {
    ledger: store.ledger,
    check: async () => assert.deepEqual(await differencesOf(file), []),
    join: async (): Promise<LeaseClient> => {
      const [port, workerPort] = portPair();
      const served = await serve(workerPort, uuid());
      // What a request holds cannot be returned, and here all of a lease is held.
      port.handle({ return_free: () => {} });
      return {
        leaseServer: {
          grant: async (request) => ({
            leased: await port.call('grant', request),
            isElsewhere: false,
            isThere: true,
          }),
          returnUnused: (balanceId, microcents) => port.call('return_unused', { balanceId, microcents }),
          callOthers: () => Promise.resolve(),
        },
        settle: (row) => port.call('settle', { requestId: row.requestId, values: usageValues(row) }),
        end: () => served.end(),
      };
    },
  };
});

/** Both ends of a connection; messages are copied. */
function portPair(): readonly [OwnerPort, WorkerPort] {
  const end = () => {
    const handlers = new Map<string, (value: unknown) => unknown>();
    const answer = async (name: string, value: unknown): Promise<unknown> =>
      structuredClone(await handlers.get(name)?.(structuredClone(value)));
    const handle = (more: Readonly<Record<string, (value: unknown) => unknown>>): void => {
      for (const [name, handler] of Object.entries(more)) handlers.set(name, handler);
    };
    return { answer, handle };
  };
  const [owner, worker] = [end(), end()];
  const port = (here: ReturnType<typeof end>, there: ReturnType<typeof end>) => ({
    call: there.answer,
    note: (name: string, value: unknown) => void there.answer(name, value),
    handle: here.handle,
  });
  return [port(worker, owner) as unknown as OwnerPort, port(owner, worker) as unknown as WorkerPort];
}
