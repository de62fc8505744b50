import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { TestContext } from 'node:test';

import { commandLine } from '../../src/accounts/actor.ts';
import { createFirstAccount } from '../../src/accounts/first-account.ts';
import type { OperationServices } from '../../src/accounts/operation.ts';
import { operate } from '../../src/accounts/operations.ts';
import { openHost } from '../account-api/host.ts';

const credit = 500_000_000n;
const open = async (t: TestContext): Promise<OperationServices> => (await openHost(t, [])).services.operations;

/** Every write after the first ones fails, like those of a process that was killed. */
function killedAfter(writes: number, services: OperationServices): OperationServices & { readonly used: () => number } {
  let used = 0;
  const counted = <Part extends object>(part: Part): Part =>
    new Proxy(part, {
      get: (_part, name) => {
        const member: unknown = Reflect.get(part, name);
        if (typeof member !== 'function' || /^(get|list)/.test(String(name))) return member;
        return (...args: unknown[]): unknown => {
          if (++used > writes) throw new Error('killed');
          return member.apply(part, args) as unknown;
        };
      },
    });
  return {
    ...services,
    ledger: counted(services.ledger),
    repositories: counted(services.repositories),
    used: () => used,
  };
}

async function thereIs({ repositories }: OperationServices) {
  const accounts = await repositories.listAccounts({});
  const keys = await repositories.listKeys({ limit: 10 });
  return [
    accounts.map(({ name, balanceMicrocents }) => [name, balanceMicrocents]),
    keys.map(({ accountId, name }) => [accountId, name]),
  ];
}

test('a start that was killed anywhere is completed by the next one: one account, its credit once, one key', async (t) => {
  const whole = killedAfter(Infinity, await open(t));
  assert.ok(await createFirstAccount(whole, credit));
  assert.ok(whole.used() > 5);
  for (let writes = 0; writes < whole.used(); writes++) {
    const services = await open(t);
    await createFirstAccount(killedAfter(writes, services), credit).catch(() => {});
    await createFirstAccount(services, credit);
    const [account] = await services.repositories.listAccounts({});
    assert.deepEqual(
      await thereIs(services),
      [[['first account', credit]], [[account?.id, 'first key']]],
      `killed after ${writes} writes`,
    );
    assert.equal(await createFirstAccount(services, credit), undefined, 'a later start');
  }
});

test('a start gives nothing to an account that an operator has made before', async (t) => {
  for (const ask of [{}, { creditMicrocents: '700' }, { keyName: 'laptop' }]) {
    const services = await open(t);
    await operate({ kind: 'create_account', name: 'Acme', ...ask }, { ...services, actor: commandLine });
    const before = await thereIs(services);
    assert.equal(await createFirstAccount(services, credit), undefined);
    assert.deepEqual(await thereIs(services), before);
  }
});
