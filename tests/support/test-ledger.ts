import assert from 'node:assert/strict';
import { join } from 'node:path';

import type { Kysely } from 'kysely';
import type { Database } from '../../src/store/database.ts';
import type { UsageRow } from '../../src/store/ledger.ts';
import { kyselyOnPostgres } from '../../src/store/postgres/dialect.ts';
import { repositoriesOn } from '../../src/store/repositories/repositories.ts';
import type { Repositories } from '../../src/store/repositories/repositories.ts';
import { toUsageRow } from '../../src/store/repositories/usage-rows.ts';
import { rowsOn } from '../../src/store/schema/codec.ts';
import { openReadOnly } from '../../src/store/sqlite/dialect.ts';
import { verifyLedger } from '../../src/store/verify/verify.ts';
import { until } from './service.ts';
import type { TestService } from './service.ts';

/**
 * What the database of a test service says, read beside the running service or without it. The commands `usage` and
 * `ledger verify` say the same and take half a second each, too long for tests with hundreds of questions.
 */
export class TestLedger {
  readonly #file: string;
  readonly #database: string | undefined;
  readonly #accountId: string;

  constructor(service: TestService) {
    this.#file = join(service.folder, 'data', 'tokenhouse.db');
    this.#database = service.database;
    this.#accountId = service.accountId;
  }

  get file(): string {
    return this.#file;
  }

  balance(): Promise<bigint> {
    return this.#read(
      async (repositories) => (await repositories.getAccount({ accountId: this.#accountId }))!.balanceMicrocents,
    );
  }

  /** Cost of all requests, and how many there are by ending. */
  sums(): Promise<{ readonly count: number; readonly costMicrocents: bigint }> {
    return this.#read(async (_repositories, db) => {
      const sum = await db
        .selectFrom('usage')
        .select((is) => [is.fn.countAll<bigint>().as('count'), is.fn.sum<bigint | null>('cost').as('cost')])
        .executeTakeFirstOrThrow();
      return { count: Number(sum.count), costMicrocents: sum.cost ?? 0n };
    });
  }

  /** Rows of a request by the id that the client saw or sent. */
  rows(publicId: string): Promise<readonly UsageRow[]> {
    return this.#read((repositories) => repositories.findUsage({ accountId: this.#accountId, id: publicId }));
  }

  /** The one row of a request, as soon as it is there. */
  async row(publicId: string, timeoutMs?: number): Promise<UsageRow> {
    let rows: readonly UsageRow[] = [];
    await until(async () => {
      rows = await this.rows(publicId);
      return rows.length > 0;
    }, timeoutMs);
    assert.equal(rows.length, 1, 'a request has one row');
    return rows[0]!;
  }

  /** Newest first. */
  newest(limit: number): Promise<readonly UsageRow[]> {
    return this.#read((repositories) => repositories.listUsage({ limit }));
  }

  /** Every request, without the bound of a page: for tests that make more. */
  everyRow(): Promise<readonly UsageRow[]> {
    return this.#read(async (_repositories, db) =>
      (await rowsOn(db).selectFrom('usage').selectAll().execute()).map(toUsageRow),
    );
  }

  /** How many requests a crash now would leave as `crashed`. */
  openRequests(): Promise<number> {
    return this.#read(
      async (_repositories, db) => (await db.selectFrom('open_request').select('request_id').execute()).length,
    );
  }

  transfers(): ReturnType<Repositories['listTransfers']> {
    return this.#read((repositories) => repositories.listTransfers({ accountId: this.#accountId }));
  }

  /** Invariants I1 to I3, by the code behind `tokenhouse ledger verify`. */
  async verify({ owned }: { readonly owned: boolean }): Promise<void> {
    const { differences } = await this.#read((_repositories, db) => verifyLedger(db, { owned }));
    assert.deepEqual(differences, []);
  }

  async #read<Value>(question: (repositories: Repositories, db: Kysely<Database>) => Promise<Value>): Promise<Value> {
    const db = this.#database === undefined ? openReadOnly(this.#file) : kyselyOnPostgres({ url: this.#database }, 1);
    try {
      return await question(repositoriesOn(db), db);
    } finally {
      await db.destroy();
    }
  }
}
