/** What is tried, one after the other, to take as much of an account as it has free. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { spendable } from '../../../src/billing/payments/spendable.ts';
import { StoreError } from '../../../src/store/store-error.ts';

type Repositories = Parameters<typeof spendable>[0];

/** `undefined`: there is no such account. */
interface Account {
  readonly balance: bigint;
  readonly limit: bigint;
  readonly held: bigint;
}

/** Takes amounts up to `most`; returns all that were tried. */
async function tried(account: Account | undefined, wanted: bigint, most: bigint): Promise<readonly bigint[]> {
  const found =
    account === undefined ? undefined : { balanceMicrocents: account.balance, creditLimitMicrocents: account.limit };
  const repositories = {
    getAccount: () => Promise.resolve(found),
    heldOf: () => Promise.resolve({ microcents: account?.held ?? 0n }),
  } as unknown as Repositories;
  const amounts: bigint[] = [];
  await spendable(repositories, 'acct_a', wanted, (microcents) => {
    amounts.push(microcents);
    return microcents > most ? Promise.reject(new StoreError('insufficient', 'x')) : Promise.resolve(true);
  });
  return amounts;
}

const has = (balance: bigint, limit = 0n, held = 0n): Account => ({ balance, limit, held });

test('all of it, or what is free, or half of that, down to nothing', async () => {
  for (const [account, most, amounts] of [
    [has(0n), 100n, [100n]],
    [has(60n, 20n, 30n), 50n, [100n, 50n]],
    [has(1n), 1n, [100n, 1n]],
    [has(50n), 0n, [100n, 50n, 25n, 12n, 6n, 3n, 1n, 0n]],
    // What seems to be free was refused a moment ago.
    [has(1_000n), 0n, [100n, 99n, 49n, 24n, 12n, 6n, 3n, 1n, 0n]],
    [has(99n), 99n, [100n, 99n]],
    [has(0n), 0n, [100n, 0n]],
    [has(10n, 5n, 20n), 0n, [100n, 0n]],
    [undefined, 0n, [100n, 0n]],
  ] as const)
    assert.deepEqual(await tried(account, 100n, most), amounts);
});

test('after thirteen amounts it is nothing', async () => {
  const wanted = 2n ** 40n;
  const amounts = await tried(has(wanted * 2n), wanted, 0n);
  assert.equal(amounts.length, 14);
  assert.deepEqual([amounts[1], amounts.at(-2), amounts.at(-1)], [wanted - 1n, (wanted - 1n) / 2n ** 11n, 0n]);
});

test('what another process has taken ends it; other failures, and nothing that is too much, are thrown', async () => {
  let calls = 0;
  const ends = (error: Error, wanted: bigint) => {
    const never = (): never => assert.fail('asked');
    return spendable({ getAccount: never, heldOf: never }, 'acct_a', wanted, () => {
      calls++;
      return Promise.reject(error);
    });
  };
  await ends(new StoreError('conflict', 'x'), 5n);
  const broken = new Error('broken');
  await assert.rejects(ends(broken, 5n), broken);
  const busy = new StoreError('busy', 'x');
  await assert.rejects(ends(busy, 5n), busy);
  const insufficient = new StoreError('insufficient', 'x');
  await assert.rejects(ends(insufficient, 0n), insufficient);
  assert.equal(calls, 4);
});
