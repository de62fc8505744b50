import { setTimeout as sleep } from 'node:timers/promises';
import type {
  LimitAnswer,
  LimitExchange,
  LimitLeases,
  LimitListener,
  LimitName,
  LimitShare,
  WantedLimit,
} from '../limit-leases.ts';
import { StoreError } from '../store-error.ts';
import { Session, type PostgresAddress, type Run } from './connection.ts';
import { beginEpoch, beginLimits, exchange, readShares, readWanted } from './limit-statements.ts';
import { isWorthAnotherTry, storeErrorOf } from './postgres-error.ts';

/** Timeout for all statements of an exchange together. */
const answerTimeoutMs = 3_000;
const conflictTriesMax = 5;

export interface PostgresLimitLeasesOptions {
  readonly address: PostgresAddress;
  /** The id of the replica in this epoch: the fencing token of its shares. */
  readonly replica: () => Uint8Array;
  readonly trustedUntilMs: () => number;
}

interface Row {
  readonly subject: string;
  readonly kind: LimitName['kind'];
  readonly length: bigint;
}

interface AnswerRow extends Row {
  readonly isAlive: boolean;
  readonly startsAt: bigint;
  readonly granted: bigint;
  readonly held: bigint;
  readonly used: bigint;
}

/** Limits in rows of PostgreSQL, leased to its replicas. Uses a dedicated connection, opened at the first use. */
export class PostgresLimitLeases implements LimitLeases {
  readonly #options: PostgresLimitLeasesOptions;
  readonly #session: Session;
  #listener: LimitListener | undefined;
  #epoch = -1n;
  /** Whether every statement of this epoch has been answered, so that the held shares are known. */
  #isSure = false;

  constructor(options: PostgresLimitLeasesOptions) {
    this.#options = options;
    this.#session = new Session({
      address: options.address,
      onConnect: async (client) => {
        this.#isSure = false;
        await client.query(`set lock_timeout = ${answerTimeoutMs}`);
      },
    });
  }

  get trustedUntilMs(): number {
    return this.#options.trustedUntilMs();
  }

  listen(listener: LimitListener): void {
    this.#listener = listener;
  }

  /** This replica continues under another id. */
  expired(): void {
    this.#isSure = false;
    this.#listener?.lost();
  }

  async exchange(collect: () => readonly LimitExchange[]): Promise<readonly LimitAnswer[]> {
    try {
      return await this.#session.exclusively(answerTimeoutMs, async (run) => {
        const replica = this.#options.replica();
        if (!this.#isSure) await this.#restore(run, replica);
        const asks = collect();
        if (asks.length === 0) return [];
        this.#isSure = false;
        const answers = await this.#ask(run, replica, asks);
        // If it expired meanwhile, the answers belong to the earlier epoch.
        this.#isSure = replica === this.#options.replica();
        return answers;
      });
    } catch (error) {
      throw storeErrorOf(error);
    }
  }

  async wanted(): Promise<readonly WantedLimit[]> {
    try {
      const { rows } = await this.#session.query<Row & { readonly contenders: bigint }>(
        readWanted,
        [this.#options.replica()],
        answerTimeoutMs,
      );
      return rows.map((row) => ({ ...nameOf(row), contenders: Number(row.contenders) }));
    } catch (error) {
      throw storeErrorOf(error);
    }
  }

  close(): Promise<void> {
    return this.#session.close();
  }

  async #restore(run: Run, replica: Uint8Array): Promise<void> {
    const [begun] = (await run<{ readonly epoch: bigint }>(beginEpoch, [replica])).rows;
    if (begun === undefined) throw unknownHere();
    const { rows } = await run<Row & { readonly startsAt: bigint; readonly held: bigint }>(readShares, [replica]);
    if (replica !== this.#options.replica()) throw unknownHere();
    this.#epoch = begun.epoch;
    this.#isSure = true;
    this.#listener?.restored(
      rows.map((row): LimitShare => ({ ...nameOf(row), startsAt: Number(row.startsAt), held: Number(row.held) })),
    );
  }

  async #ask(run: Run, replica: Uint8Array, asks: readonly LimitExchange[]): Promise<readonly LimitAnswer[]> {
    const answers = new Map<string, LimitAnswer>();
    let open = asks;
    for (let isFirst = true; open.length > 0; isFirst = false) {
      for (const row of await this.#exchange(run, replica, open)) {
        const { startsAt, granted, held, used } = row;
        answers.set(textOf(nameOf(row)), {
          startsAt: Number(startsAt),
          granted: Number(granted),
          held: Number(held),
          used: Number(used),
        });
      }
      open = asks.filter((ask) => !answers.has(textOf(ask)));
      if (open.length === 0) break;
      if (!isFirst) throw new StoreError('failed', 'a limit that was just made is not there');
      const column = <Value>(of: (ask: LimitExchange) => Value): readonly Value[] => open.map(of);
      await run(beginLimits, [column((ask) => ask.subject), column((ask) => ask.kind), column((ask) => ask.lengthMs)]);
    }
    return asks.map((ask) => answers.get(textOf(ask))!);
  }

  /** Runs the exchange; repeats it if it lost a race, which has rolled it back. */
  async #exchange(run: Run, replica: Uint8Array, asks: readonly LimitExchange[]): Promise<readonly AnswerRow[]> {
    const column = <Value>(of: (ask: LimitExchange) => Value): readonly Value[] => asks.map(of);
    const values = [
      replica,
      this.#epoch,
      column((ask) => ask.subject),
      column((ask) => ask.kind),
      column((ask) => ask.lengthMs),
      column((ask) => ask.startsAt),
      column((ask) => ask.limit),
      column((ask) => ask.back),
      column((ask) => ask.owed),
      column((ask) => ask.least),
      column((ask) => ask.need),
      column((ask) => ask.want),
      column((ask) => ask.leaves),
    ];
    for (let conflicts = 0; ; conflicts++) {
      try {
        const { rows } = await run<AnswerRow>(exchange, values);
        if (rows[0]?.isAlive !== true) throw unknownHere();
        return rows.filter(({ subject }) => subject !== null);
      } catch (error) {
        if (conflicts >= conflictTriesMax || !isWorthAnotherTry(error)) throw error;
        await sleep(Math.random() * 10 * 2 ** conflicts);
      }
    }
  }
}

const nameOf = ({ subject, kind, length }: Row): LimitName => ({ subject, kind, lengthMs: Number(length) });
const textOf = ({ subject, kind, lengthMs }: LimitName): string => `${subject} ${kind} ${lengthMs}`;

/** The next heartbeat detects it, and this replica continues under another id. */
const unknownHere = (): StoreError =>
  new StoreError('failed', 'this replica has expired, or the database does not know it yet');
