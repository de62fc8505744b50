/**
 * The thread that owns the only connection that writes accounts' money, transfers, usage and open requests. A batch is a transaction: what
 * arrives while one commits forms the next. Nothing here waits for a timer.
 */
import '../../platform/stack-traces.ts';

import { endThread, serveParent } from '../../platform/rpc/thread.ts';
import { assertDurable, openConnection } from './connection.ts';
import type { LedgerBatch, LedgerReply } from './ledger-batch.ts';
import { LedgerWriter } from './ledger-writer.ts';
import { StandingFile } from './standing-file.ts';

/** The main thread's calls: `start` first, once the schema is up to date, and `close` last. */
export type LedgerCalls = {
  /** Returns the number of requests that had crashed. */
  readonly start: (options: { readonly file: string; readonly now: number }) => number;
  readonly write: (batch: LedgerBatch) => LedgerReply;
  readonly close: (nothing: null) => null;
};

/** In addition to the check after each batch, because an idle service must not continue either. */
const lookEveryMs = 1_000;

const rpc = serveParent<LedgerCalls>({
  handlers: { start: ({ file, now }) => start(file, now), close: endThread },
  // Any other error ends the thread, and with it the process.
  isAnswer: (_error, name) => name === 'start',
});

function start(file: string, now: number): number {
  const connection = openConnection(file);
  const standing = new StandingFile(file);
  assertDurable(connection);
  const writer = new LedgerWriter(connection);
  const recovered = writer.recover(now);
  const looking = setInterval(() => standing.check(), lookEveryMs);
  rpc.handle({
    write: (batch) => {
      const reply = writer.write(batch);
      standing.check(); // before any of it is acknowledged
      return reply;
    },
    close: () => {
      clearInterval(looking);
      writer.close();
      return endThread();
    },
  });
  return recovered;
}
