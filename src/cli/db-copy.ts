import { setTimeout as sleep } from 'node:timers/promises';

import { OperationError } from '../accounts/operation.ts';
import { askForStatus } from '../app/control/control-client.ts';
import { controlSocketPath } from '../app/control/socket-path.ts';
import { withCopySource, withCopyTarget } from '../app/copy-ends.ts';
import type { StorageConfig } from '../config/config.ts';
import { shownPlace, storageAt } from '../config/sections/storage.ts';
import { copyDatabase, type Copied } from '../store/copy/copy-database.ts';
import { StoreError } from '../store/store-error.ts';
import { secretFile } from './backup-secret.ts';
import type { Context } from './context.ts';
import { stoppable } from './stoppable.ts';
import { counted } from './amount.ts';

export interface CopyDatabaseOptions {
  readonly to: string;
  /** Stops the running service first. */
  readonly final?: boolean;
}

const progressEveryMs = 2_000;
const stopTimeoutMs = 120_000;
const endTimeoutMs = 10_000;

/** Copies the database into an empty one of the other kind, and compares both. */
export async function copyDatabaseTo(context: Context, { to, final = false }: CopyDatabaseOptions): Promise<number> {
  const { config, print } = context;
  const source = config.storage;
  const target = targetOf(context, to);
  await refuseRunning(context, final);
  const startedAt = performance.now();
  const copied = await stoppable(shownPlace(target), (signal) =>
    withCopyTarget(target, (into) =>
      withCopySource(source, (from) =>
        copyDatabase(from, into, { signal, nowMs: Date.now(), onProgress: progressOn(print.say) }),
      ),
    ),
  ).catch((error: unknown) => {
    // Its message says what to do; no service has failed.
    throw error instanceof StoreError ? new OperationError(error.message) : error;
  });
  report(context, target, copied, (performance.now() - startedAt) / 1_000);
  return 0;
}

function targetOf({ around, config, environment }: Context, address: string): StorageConfig {
  const target = storageAt(address, {
    directory: around.directory,
    environment,
    report: (what) => {
      throw new OperationError(`--to: ${what}`);
    },
  });
  if (shownPlace(target) === shownPlace(config.storage))
    throw new OperationError(`--to: ${shownPlace(target)} is what the configuration uses already.`);
  return target;
}

/** Checks for a service of this folder. The database shows those on other computers. */
async function refuseRunning({ config, print }: Context, final: boolean): Promise<void> {
  const socket = controlSocketPath(config.storage.directory);
  const status = await askForStatus(socket);
  if (status === undefined) return;
  if (status === 'other') throw new OperationError('A service of another version runs here. Stop it, and copy then.');
  if (!final)
    throw new OperationError(
      'A service runs here, and what it does while its database is copied would be missing in the copy. Stop it, or let this ' +
        'command stop it as SIGTERM does: tokenhouse db copy --final',
    );
  print.say(`stopping the service (process ${status.pid}): running requests end first`);
  process.kill(status.pid, 'SIGTERM');
  const until = performance.now() + stopTimeoutMs;
  while ((await askForStatus(socket).catch(() => status)) !== undefined) {
    if (performance.now() > until) throw new OperationError(`The service has not ended in ${stopTimeoutMs / 1_000} s.`);
    await sleep(200);
  }
  // It answers no more before it has written its last, and gives up the file as it ends. One that nobody has waited for stays in the list.
  const endsBy = performance.now() + endTimeoutMs;
  while (isThere(status.pid) && performance.now() < endsBy) await sleep(50);
}

function isThere(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

function progressOn(say: (line: string) => void) {
  let saidAt = performance.now();
  return (table: string, rows: number, of: number): void => {
    const now = performance.now();
    if (now - saidAt < progressEveryMs) return;
    saidAt = now;
    say(table === 'compare' ? `comparing: ${rows} rows` : `${table}: ${rows} of ${of} rows`);
  };
}

function report({ config, print }: Context, target: StorageConfig, copied: Copied, seconds: number): void {
  const { tables, examined, rowsBefore } = copied;
  const rows = tables.reduce((sum, table) => sum + table.rows, 0);
  const [from, to] = [shownPlace(config.storage), shownPlace(target)];
  const folders = [config.storage.directory, target.directory];
  print.result(
    {
      from,
      to,
      rows,
      rows_copied_before: rowsBefore,
      seconds: Math.round(seconds * 10) / 10,
      accounts: examined.accounts,
      transfers: examined.transfers,
      usage_rows: examined.usageRows,
      differences: examined.differences,
      tables: tables.map(({ table, rows: of, digest }) => ({ table, rows: of, sha256: digest })),
    },
    [
      `${to} is a copy of ${from}: ${counted(rows, 'row')} of ${tables.length} tables in ${seconds.toFixed(1)} s` +
        (rowsBefore === 0 ? '' : `, ${rowsBefore} of them from before`),
      `  ${counted(examined.accounts, 'account')}, ${counted(examined.transfers, 'transfer')}, ${counted(examined.usageRows, 'request')}; every table has the same rows on both sides` +
        (examined.differences.length === 0
          ? ', and the ledger verifies'
          : `; the ledger has ${examined.differences.length} differences, as it had before (tokenhouse ledger verify)`),
      `Now set \`storage: ${target.type === 'sqlite' ? `sqlite:${to}` : to}\` in the configuration and start the service. The old database stays as it is.`,
      ...(folders[0] === folders[1]
        ? []
        : [
            `What lies beside it comes along by hand, from ${folders[0]} to ${folders[1]}: the secret of the keys (${secretFile(config)}), and uploaded files.`,
          ]),
    ],
  );
}
