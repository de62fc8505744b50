import { existsSync, statSync } from 'node:fs';

import { sql } from 'kysely';

import type { PostgresStorageConfig } from '../../config/config.ts';
import { repositoriesOn } from '../../store/repositories/repositories.ts';
import { migrationsThatRan, newerThanThis, pendingAfter } from '../../store/migrations/migrate.ts';
import { openReadOnlyConnection, readPragma } from '../../store/sqlite/connection.ts';
import { kyselyOn } from '../../store/sqlite/dialect.ts';
import { isOwned } from '../../store/sqlite/lock.ts';
import { StoreError } from '../../store/store-error.ts';
import { verifyLedger } from '../../store/verify/verify.ts';
import { isStoreInUse, openStoreReader } from '../../app/stores.ts';
import { bytesInWords } from '../amount.ts';
import type { Finding, Patient } from './finding.ts';
import { quoted } from '../folder.ts';
import { counted } from '../amount.ts';

/** Above this a complete check takes minutes, and has a separate command. */
const verifiedBytesMax = 64 * 1024 * 1024;

interface Looked {
  readonly findings: readonly Finding[];
  /** The latest time in the database. */
  readonly newestAt: number | undefined;
}

/** Reads on a connection that cannot write, with or without a running service. */
export async function lookAtDatabase({ config, status }: Patient): Promise<Looked> {
  if (config.storage.type === 'postgres') return await lookAtServer(config.storage);
  const { path: file } = config.storage;
  if (!existsSync(file))
    return { findings: [{ check: 'database', state: 'ok', found: `${file} (will be created)` }], newestAt: undefined };
  try {
    return await lookInto(file, status !== undefined);
  } catch (error) {
    const found = error instanceof StoreError ? error.message : `${file} cannot be read`;
    const finding: Finding = {
      check: 'database',
      state: 'problem',
      found,
      why:
        error instanceof Error && !(error instanceof StoreError) ? error.message : 'the service does not start with it',
      repair: `ls -l ${quoted(file)}`,
    };
    return { findings: [finding], newestAt: undefined };
  }
}

async function lookAtServer(storage: PostgresStorageConfig): Promise<Looked> {
  const check = 'database';
  try {
    const db = (await openStoreReader(storage))!;
    try {
      const { rows } = await sql<{ bytes: bigint; migrated: string | null }>`
        select pg_database_size(current_database()) as bytes, to_regclass('kysely_migration')::text as migrated`.execute(
        db,
      );
      const { bytes, migrated } = rows[0]!;
      const size = Number(bytes);
      const findings: Finding[] = [{ check, state: 'ok', found: `${storage.shown} · ${bytesInWords(size)}` }];
      const pending = lookAtMigrations(migrated === null ? [] : await migrationsThatRan(db));
      findings.push(pending);
      if (pending.state === 'problem' || pending.found !== upToDate) return { findings, newestAt: undefined };
      const [newest] = await repositoriesOn(db).listUsage({ limit: 1 });
      const inUse = await isStoreInUse(storage, db);
      findings.push(size <= verifiedBytesMax ? await lookAtLedger(db, inUse) : tooLarge(size));
      return { findings, newestAt: newest?.endedAt };
    } finally {
      await db.destroy();
    }
  } catch (error) {
    const found = error instanceof StoreError ? error.message : `${storage.shown} cannot be read`;
    const why = error instanceof StoreError ? 'the service does not start without it' : String(error);
    const repair = `pg_isready --dbname=${quoted(storage.shown)}`;
    return { findings: [{ check, state: 'problem', found, why, repair }], newestAt: undefined };
  }
}

async function lookInto(file: string, running: boolean): Promise<Looked> {
  const findings: Finding[] = [];
  const { size } = statSync(file);
  const owned = isOwned(file);
  if (owned && !running) {
    findings.push({
      check: 'owner',
      state: 'warning',
      found: 'a process has the database locked, but no service answers on its control socket',
      why: 'a command is writing, or a service is starting or not responding; no other service can start meanwhile',
      repair: `fuser ${quoted(`${file}.lock`)}`,
    });
  }
  const connection = openReadOnlyConnection(file);
  const db = kyselyOn(connection);
  try {
    const damage = size <= verifiedBytesMax ? readPragma(connection, 'quick_check(1)') : 'ok';
    if (damage !== 'ok') {
      findings.push({
        check: 'database',
        state: 'problem',
        found: `${file} is damaged (${String(damage)})`,
        why: 'its data cannot be trusted',
        repair: `cp -p ${quoted(file)} ${quoted(`${file}.damaged`)} (then restore the last backup)`,
      });
      return { findings, newestAt: undefined };
    }
    findings.push({ check: 'database', state: 'ok', found: `${file} · ${bytesInWords(size)}` });
    const pending = lookAtMigrations(ranMigrations(connection));
    findings.push(pending);
    if (pending.state === 'problem' || pending.found !== upToDate) return { findings, newestAt: undefined };
    const [newest] = await repositoriesOn(db).listUsage({ limit: 1 });
    findings.push(size <= verifiedBytesMax ? await lookAtLedger(db, owned) : tooLarge(size));
    return { findings, newestAt: newest?.endedAt };
  } finally {
    await db.destroy();
  }
}

function ranMigrations(connection: ReturnType<typeof openReadOnlyConnection>): readonly string[] {
  const table = connection.prepare("select name from sqlite_schema where name = 'kysely_migration'").get();
  if (table === undefined) return [];
  const rows = connection.prepare('select name from kysely_migration order by name').all();
  return rows.map((row) => String((row as Record<string, unknown>)['name']));
}

const upToDate = 'up to date';

function lookAtMigrations(ran: readonly string[]): Finding {
  const check = 'schema';
  const unknown = newerThanThis(ran);
  if (unknown.length > 0) {
    return {
      check,
      state: 'problem',
      found: `made by a newer version: ${unknown.join(', ')}`,
      why: 'this version does not know these migrations, so it does not start',
      repair: 'git pull && npm start',
    };
  }
  const missing = pendingAfter(ran);
  return { check, state: 'ok', found: missing.length === 0 ? upToDate : `the next start runs ${missing.join(', ')}` };
}

async function lookAtLedger(db: Parameters<typeof verifyLedger>[0], owned: boolean): Promise<Finding> {
  const { differences, accounts, transfers, usageRows } = await verifyLedger(db, { owned });
  const found = `${counted(accounts, 'account')}, ${counted(transfers, 'transfer')}, ${counted(usageRows, 'request')}`;
  if (differences.length === 0) return { check: 'ledger', state: 'ok', found: `right: ${found}` };
  return {
    check: 'ledger',
    state: 'problem',
    found: `${differences.length} differences in ${found}`,
    why: 'a balance does not match its ledger rows',
    repair: 'tokenhouse ledger verify',
  };
}

const tooLarge = (size: number): Finding => ({
  check: 'ledger',
  state: 'ok',
  found: `not verified here, because the file has ${bytesInWords(size)}; run tokenhouse ledger verify`,
});
