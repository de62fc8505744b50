import assert from 'node:assert/strict';
import { issueKey } from '../../src/accounts/key.ts';
import { openSecret } from '../../src/accounts/secret.ts';
import type { Repositories } from '../../src/store/repositories/repositories.ts';
import { uuid } from './fixture.ts';

const secret = openSecret({ fromEnvironment: 's'.repeat(32), dataFolder: '/nowhere', warn: assert.fail });
const bytes = (hash: Uint8Array): string => Buffer.from(hash).toString('hex');

/** What keys that are not in memory are read by, on either store. The account is there, and has no keys. */
export async function keysAreFoundByHash(repositories: Repositories, accountId: string): Promise<void> {
  const create = async () => {
    const { row } = issueKey({ accountId, name: 'mine', secret, now: 1 });
    await repositories.createKey({
      key: row,
      budget: { amountMicrocents: 5n, per: 'day' },
      changeId: uuid(),
    });
    return row;
  };
  const [plain, rotated, revoked, next] = [await create(), await create(), await create(), issueOnly(accountId)];
  const at = 2;
  const { hash, pepperId, display } = next;
  await repositories.rotateKey({ keyId: rotated.id, hash, pepperId, display, previousEndsAt: 9, at, changeId: uuid() });
  await repositories.revokeKey({ keyId: revoked.id, at, changeId: uuid() });

  const idsOf = async (...hashes: readonly Uint8Array[]): Promise<readonly string[]> =>
    (await repositories.findKeys({ hashes })).map(({ id }) => id).toSorted();
  assert.deepEqual(await idsOf(), []);
  assert.deepEqual(await idsOf(plain.hash), [plain.id]);
  assert.deepEqual(await idsOf(rotated.hash), [rotated.id], 'by the secret before');
  assert.deepEqual(await idsOf(hash), [rotated.id]);
  assert.deepEqual(await idsOf(revoked.hash, new Uint8Array(32)), []);
  assert.deepEqual(await idsOf(hash, plain.hash, rotated.hash), [plain.id, rotated.id].toSorted(), 'each once');
  const byId = await repositories.loadKeys({ ids: [plain.id] });
  assert.deepEqual(await repositories.findKeys({ hashes: [plain.hash] }), byId, 'with all that goes with it');
  assert.equal(byId[0]!.budget?.amountMicrocents, 5n);

  assert.deepEqual(
    await Promise.all([1, 2, 3].map((most) => repositories.countKeys({ most }))),
    [undefined, 2, 2],
    'of three, one is revoked',
  );

  const pages = async (previous: boolean): Promise<readonly string[]> => {
    const found: string[] = [];
    for (let after: Uint8Array | null = null; ;) {
      const page: Uint8Array = await repositories.listKeyHashes({ previous, after, limit: 2 });
      for (let offset = 0; offset < page.length; offset += 32) found.push(bytes(page.slice(offset, offset + 32)));
      if (page.length < 64) return found;
      after = page.slice(-32);
    }
  };
  assert.deepEqual(await pages(false), [plain.hash, hash, revoked.hash].map(bytes).toSorted());
  assert.deepEqual(await pages(true), [bytes(rotated.hash)]);
}

const issueOnly = (accountId: string) => issueKey({ accountId, name: 'next', secret, now: 1 }).row;
