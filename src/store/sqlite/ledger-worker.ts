/**
 * The thread that owns the one connection which writes accounts' money, transfers, usage and open requests.
 * A batch is a transaction: what arrives while one commits is the next. Nothing here waits for a timer.
 */
import '../../platform/stack-traces.ts';

import { parentPort, workerData } from 'node:worker_threads';
import { toFailure } from '../store-error.ts';
import { assertDurable, openConnection } from './connection.ts';
import type { LedgerBatch } from './ledger-batch.ts';
import { LedgerWriter } from './ledger-writer.ts';

/** What the main side sends first, once the schema is up to date. */
export interface LedgerStart {
  readonly now: number;
}

export type LedgerStarted = { readonly recovered: number } | { readonly failure: ReturnType<typeof toFailure> };

const port = parentPort!;
const { file } = workerData as { readonly file: string };

port.once('message', (start: LedgerStart | 'close') => {
  if (start === 'close') {
    port.close();
    return;
  }
  let writer: LedgerWriter;
  try {
    const connection = openConnection(file);
    assertDurable(connection);
    writer = new LedgerWriter(connection);
    port.postMessage({ recovered: writer.recover(start.now) } satisfies LedgerStarted);
  } catch (error) {
    port.postMessage({ failure: toFailure(error) } satisfies LedgerStarted);
    port.close();
    return;
  }
  port.on('message', (batch: LedgerBatch | 'close') => {
    if (batch !== 'close') {
      port.postMessage(writer.write(batch)); // what it throws ends the thread, and with it the process
      return;
    }
    writer.close();
    port.close();
  });
});
