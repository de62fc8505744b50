/**
 * Every order in which the statements of two and of three sessions can meet while their transactions are open, as in
 * PostgreSQL's own isolation tests: the money of the account is the same to the microcent, and nothing is stranded.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import pg from 'pg';
import { balanceAt } from '../../../src/store/budget.ts';
import type { BudgetChange } from '../../../src/store/ledger.ts';
import type { Run } from '../../../src/store/postgres/connection.ts';
import { clientConfig } from '../../../src/store/postgres/connection.ts';
import { move, runSteps } from '../../../src/store/postgres/run-steps.ts';
import { sqlState } from '../../../src/store/postgres/postgres-error.ts';
import { setBudget } from '../../../src/store/ledger-steps.ts';
import {
  beginBalance,
  deleteExpired,
  returnCredit,
  returnBudget,
  grant as grantStatement,
  grantOfBudget,
  register,
  returnLeases,
  settle,
  settleWithBudgets,
} from '../../../src/store/postgres/statements.ts';
import { openPostgresStore } from '../../../src/store/postgres/store.ts';
import { usageColumns, usageValues } from '../../../src/store/reports/usage-columns.ts';
import { grant, usage, uuid } from '../../store/fixture.ts';
import { assertRight } from './fixture.ts';
import { PostgresServer } from './server.ts';

let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start();
});
after(() => server.dispose());

interface Scene {
  readonly accountId: string;
  /** Has a lease of 300, and an old heartbeat: a reaper takes it for dead. */
  readonly replica: Uint8Array;
}

type Step = (run: Run, scene: Scene) => Promise<unknown>;

const steps: Readonly<Record<string, Step>> = {
  grant: async (run, { accountId, replica }) => run(grantStatement, [replica, accountId, 50n, 64n, 1n]),
  settle: async (run, { accountId, replica }) => {
    const row = usage(accountId, 40n);
    const columns = usageValues(row).map((value) => [value]);
    assert.equal(columns.length, usageColumns.length);
    return run(settle, [replica, [accountId], [row.requestId], ...columns]);
  },
  back: async (run, { accountId, replica }) => run(returnCredit, [replica, accountId, 30n]),
  reap: async (run) => {
    await run(deleteExpired, [5_000]);
    await run(returnLeases, []);
  },
  topUp: (run, { accountId }) => move(run, grant(accountId, 500n)),
  revoke: async (run, { accountId }) =>
    run({ text: `update account set status = 'suspended' where id = $1` }, [accountId]),
};

/** The same of the account's budget, which the scene has leased 300 of as well. */
const budgetSteps: Readonly<Record<string, Step>> = {
  grant: async (run, { accountId, replica }) => run(grantOfBudget, [replica, balanceOf(accountId), 50n, 64n, 1n]),
  settle: async (run, { accountId, replica }) => {
    const row = usage(accountId, 40n, { accountBudget: 'total' });
    const columns = usageValues(row).map((value) => [value]);
    const charges = [[balanceOf(accountId)], [row.requestId], [balanceOf(accountId)]];
    return run(settleWithBudgets, [replica, [accountId], [row.requestId], ...columns, ...charges]);
  },
  back: async (run, { accountId, replica }) => run(returnBudget, [replica, balanceOf(accountId), 30n]),
  reap: steps['reap']!,
  lower: (run, { accountId }) => runSteps(run, setBudget(budgetChange(accountId, 200n))),
  begin: (run, { accountId }) => run(beginBalance, [balanceOf(accountId), accountId, 'total', 0, null]),
};

const balanceOf = (accountId: string): string => balanceAt(accountId, 'total', 0).id;

const budgetChange = (accountId: string, amountMicrocents: bigint): BudgetChange => ({
  kind: 'account_budget',
  subject: accountId,
  budget: { amountMicrocents, per: 'total' },
  spentBeforeMicrocents: 0n,
  at: Date.now(),
  changeId: uuid(),
});

test('all orders of two and three sessions', () => allOrders(steps));
test('all orders of two and three sessions on a budget', () => allOrders(budgetSteps));

async function allOrders(steps: Readonly<Record<string, Step>>): Promise<void> {
  const names = Object.keys(steps);
  const url = await server.databaseWithTables();
  // The schema alone; nobody beats or reaps here but the steps.
  await (await openPostgresStore({ address: { url }, shown: 'the test' })).close();
  const clients = await Promise.all(
    [0, 1, 2, 3].map(async () => {
      const client = new pg.Client(clientConfig({ url }));
      await client.connect();
      await client.query(`set deadlock_timeout = '50ms'`);
      return client;
    }),
  );
  const runs = clients.map((client): Run => async (statement, values) => {
    const { rows, rowCount } = await client.query({ ...statement, values: [...values] });
    return { rows: rows as never[], count: rowCount ?? 0 };
  });
  const stage = runs[3]!;
  const orders = [
    ...names.flatMap((one) => names.map((two) => [one, two])),
    ...names.flatMap((one) => names.flatMap((two) => names.map((three) => [one, two, three]))),
  ];
  let number = 0;
  for (const order of orders) {
    const scene: Scene = { accountId: `acct_${++number}`, replica: uuid() };
    await setScene(stage, scene);

    // Each begins as soon as the one before has run, or waits for somebody.
    const begun: Promise<unknown>[] = [];
    for (const [index, name] of order.entries()) {
      const run = runs[index]!;
      await run({ text: 'begin' }, []);
      const acting = steps[name]!(run, scene);
      let hasEnded = false;
      acting.finally(() => (hasEnded = true)).catch(() => {});
      begun.push(acting);
      while (!hasEnded && !(await isWaiting(stage, clients[index]!)))
        await new Promise((resolve) => setImmediate(resolve));
    }
    const end = async (index: number): Promise<void> => {
      try {
        await begun[index];
        await runs[index]!({ text: 'commit' }, []);
      } catch (error) {
        await runs[index]!({ text: 'rollback' }, []);
        // Only a reaper locks in another order; who loses against it tries again (reliability D7). All else is a fault.
        if (sqlState(error) !== '40P01' || !order.includes('reap'))
          throw new Error(order.join(' · '), { cause: error });
      }
    };
    // The first lets go; after that the database decides who is next.
    await end(0);
    await Promise.all(begun.slice(1).map((_, index) => end(index + 1)));

    if (order.includes('reap')) {
      // The next sweep of anybody alive.
      await steps['reap']!(stage, scene);
      const text =
        'select 1 from credit_lease where account_id = $1 union all select 1 from budget_lease where balance_id = $2';
      const left = await stage({ text }, [scene.accountId, balanceOf(scene.accountId)]);
      assert.equal(left.count, 0, `${order.join(' · ')}: nothing is stranded`);
    }
    const { rows } = await stage<{ money: bigint }>(
      {
        text: `select available + coalesce((select sum(remaining) from credit_lease where account_id = $1), 0)
            + coalesce((select sum(cost) from usage where account_id = $1), 0)
            - coalesce((select sum(amount) from transfer where credit_account = $1), 0) as money
          from account where id = $1`,
      },
      [scene.accountId],
    );
    assert.equal(rows[0]?.money, 0n, order.join(' · '));
    const { rows: balances } = await stage<{ left: bigint; charged: bigint }>(
      {
        text: `select amount - spent_before - available
            - coalesce((select sum(remaining) from budget_lease where balance_id = budget_balance.id), 0) as left,
            coalesce((select sum(cost) from usage where account_id = $1 and account_budget = 'total'), 0) as charged
          from budget_balance where subject = $1`,
      },
      [scene.accountId],
    );
    assert.equal(balances[0]?.left, balances[0]?.charged, order.join(' · '));
    const { count: settled } = await stage({ text: 'select 1 from usage where account_id = $1' }, [scene.accountId]);
    // M6: what was settled before the reaper came stays, what comes after it is not written.
    const settlements = order.filter((name) => name === 'settle').length;
    assert.ok(order.includes('reap') ? settled <= settlements : settled === settlements, order.join(' · '));
    if (order[0] === 'reap') assert.equal(settled, 0, order.join(' · '));
    await restore(stage, scene);
  }
  assert.equal(number, 36 + 216);
  for (const client of clients) await client.end();
  await assertRight(url);
}

async function setScene(run: Run, { accountId, replica }: Scene): Promise<void> {
  const text = `insert into account (id, kind, name, status, available, credit_limit, version, created_at)
    values ($1, 0, '', 'active', 0, 0, 1, 0)`;
  await run({ text }, [accountId]);
  await move(run, grant(accountId, 1000n));
  await run(register, [replica]);
  await run(grantStatement, [replica, accountId, 300n, 300n, 1n]);
  await runSteps(run, setBudget(budgetChange(accountId, 1000n)));
  await run(grantOfBudget, [replica, balanceOf(accountId), 300n, 300n, 1n]);
  await run({ text: 'update replica set heartbeat_at = 0 where id = $1' }, [replica]);
}

/** Whether the session waits for another one's lock. */
async function isWaiting(run: Run, client: pg.Client): Promise<boolean> {
  const pid = (client as unknown as { readonly processID: number }).processID;
  const { rows } = await run<{ waits: boolean }>(
    { text: 'select cardinality(pg_blocking_pids($1::int)) > 0 as waits' },
    [pid],
  );
  return rows[0]?.waits === true;
}

/** What the scene has leased goes back before the next one. */
async function restore(run: Run, { replica }: Scene): Promise<void> {
  await run({ text: 'delete from replica where id = $1' }, [replica]);
  await run(returnLeases, []);
}
