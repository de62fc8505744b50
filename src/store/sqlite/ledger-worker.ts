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
import { StandingFile } from './standing-file.ts';

/** The first message of the main side, once the schema is up to date. */
export interface LedgerStart {
  readonly now: number;
}

export type LedgerStarted = { readonly recovered: number } | { readonly failure: ReturnType<typeof toFailure> };

/** Besides the check after each batch: an idle service must not go on either. */
const lookEveryMs = 1_000;

const port = parentPort!;
const { file } = workerData as { readonly file: string };

port.once('message', (start: LedgerStart | 'close') => {
  if (start === 'close') {
    port.close();
    return;
  }
  let writer: LedgerWriter;
  let standing: StandingFile;
  try {
    const connection = openConnection(file);
    standing = new StandingFile(file);
    assertDurable(connection);
    writer = new LedgerWriter(connection);
    port.postMessage({ recovered: writer.recover(start.now) } satisfies LedgerStarted);
  } catch (error) {
    port.postMessage({ failure: toFailure(error) } satisfies LedgerStarted);
    port.close();
    return;
  }
  // An error thrown here ends the thread, and with it the process.
  const looking = setInterval(() => standing.check(), lookEveryMs);
  port.on('message', (batch: LedgerBatch | 'close') => {
    if (batch !== 'close') {
      const reply = writer.write(batch);
      standing.check(); // before anything of it is acknowledged
      port.postMessage(reply);
      return;
    }
    clearInterval(looking);
    writer.close();
    port.close();
  });
});
