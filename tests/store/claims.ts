/** What every store must do with the claims of idempotency keys (docs/decisions/008-idempotency.md), as a list of tests. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test, type TestContext } from 'node:test';
import { publicIdOf } from '../../src/platform/ids/uuid.ts';
import type { RequestClaim } from '../../src/store/repositories/idempotency.ts';
import type { Ending, Ledger, UsageRow } from '../../src/store/ledger.ts';
import type { Repositories } from '../../src/store/repositories/repositories.ts';
import { usage, uuid } from './fixture.ts';

export interface ClaimStore {
  readonly repositories: Repositories;
  readonly ledger: Pick<Ledger, 'settle'>;
  /** A process that is alive beside the one that asks; undefined where there can be none. */
  readonly otherOwner: Uint8Array | undefined;
  readonly owner: Uint8Array;
}

const hash = (): Uint8Array => Uint8Array.from(randomBytes(32));
const encrypted = (text: string): Uint8Array => new TextEncoder().encode(text);
const dayMs = 86_400_000;

/** `open` makes a store with the customer `acct_a`, who has nothing. */
export function testClaims(open: (t: TestContext) => Promise<ClaimStore>): void {
  function claimOf({ owner }: ClaimStore, changes: Partial<RequestClaim> = {}): RequestClaim {
    const requestId = changes.requestId ?? uuid();
    return {
      accountId: 'acct_a',
      keyHash: hash(),
      fingerprint: hash(),
      requestId,
      publicId: publicIdOf(requestId),
      owner,
      now: 1_000 * dayMs,
      expiredAt: 999 * dayMs,
      ...changes,
    };
  }
  /** The same request again. */
  const again = (claim: RequestClaim, changes: Partial<RequestClaim> = {}): RequestClaim => {
    const requestId = uuid();
    return { ...claim, requestId, publicId: publicIdOf(requestId), ...changes };
  };
  const ended = (claim: RequestClaim, ending: Ending): UsageRow =>
    usage('acct_a', 0n, { requestId: claim.requestId, publicId: claim.publicId, ending });

  test('a charged answer is found, byte for byte, and by its account only', async (t) => {
    const store = await open(t);
    const { repositories, ledger } = store;
    const claim = claimOf(store);
    assert.deepEqual(await repositories.claimRequest(claim), { outcome: 'claimed' });
    const answer = Uint8Array.from(randomBytes(10_000)); // encrypted, so of any bytes
    assert.equal(await repositories.keepAnswer({ ...claim, answer }), true);
    await ledger.settle(ended(claim, 'finished'));
    assert.deepEqual(await repositories.claimRequest(again(claim)), {
      outcome: 'answered',
      publicId: claim.publicId,
      modelId: 'model',
      answer,
    });
    assert.deepEqual(await repositories.claimRequest(again(claim, { accountId: 'acct_b' })), { outcome: 'claimed' });
    assert.deepEqual(await repositories.claimRequest(again(claim, { fingerprint: hash() })), { outcome: 'other' });
  });

  test('what counts is the charge: an answer that was kept and not charged does not count, one that was charged and not kept is reported', async (t) => {
    const store = await open(t);
    const { repositories, ledger } = store;
    for (const ending of [
      'failed',
      'lost',
      'crashed',
      'client_left',
      'reader_stalled',
      'revoked',
      'drained',
    ] as const) {
      const claim = claimOf(store);
      await repositories.claimRequest(claim);
      await repositories.keepAnswer({ ...claim, answer: encrypted('of the first') });
      await ledger.settle(ended(claim, ending));
      const second = again(claim);
      assert.deepEqual(await repositories.claimRequest(second), { outcome: 'claimed' }, ending);
      // Nothing of the first is left.
      await ledger.settle(ended(second, 'finished'));
      const reported = { outcome: 'answered', publicId: second.publicId, modelId: 'model', answer: null };
      assert.deepEqual(await repositories.claimRequest(again(claim)), reported, ending);
    }
    const claim = claimOf(store);
    await repositories.claimRequest(claim);
    await ledger.settle(ended(claim, 'credit'));
    assert.equal((await repositories.claimRequest(again(claim))).outcome, 'answered');
  });

  test('the claim of a dead process is taken over, and the dead one can keep nothing any more', async (t) => {
    const store = await open(t);
    const { repositories } = store;
    for (let round = 0; round < 20; round++) {
      const dead = claimOf(store, { owner: uuid() });
      await repositories.claimRequest(dead);
      assert.deepEqual(
        await outcomesOfAll(store, dead),
        store.otherOwner === undefined ? ['claimed'] : ['claimed', 'running'],
      );
      assert.equal(await repositories.keepAnswer({ ...dead, answer: encrypted('too late') }), false);
      // Nor does it free the key.
      await repositories.leaveRequest(dead);
      if (store.otherOwner === undefined) continue;
      assert.deepEqual(await outcomesOfAll(store, dead), ['claimed', 'running']);
    }
  });

  test('of those that claim a new key at once, one has it', async (t) => {
    const store = await open(t);
    for (let round = 0; round < 20; round++) {
      const outcomes = await outcomesOfAll(store, claimOf(store));
      assert.deepEqual(outcomes, store.otherOwner === undefined ? ['claimed'] : ['claimed', 'running']);
    }
  });

  /** Of each process that there is, at once; sorted. */
  async function outcomesOfAll(
    { repositories, owner, otherOwner }: ClaimStore,
    claim: RequestClaim,
  ): Promise<readonly string[]> {
    const owners = otherOwner === undefined ? [owner] : [owner, otherOwner];
    const asked = await Promise.all(owners.map((one) => repositories.claimRequest(again(claim, { owner: one }))));
    return asked.map(({ outcome }) => outcome).toSorted();
  }

  test('a key that is left is free, and so is one after a day; tidying deletes what is over a bound', async (t) => {
    const store = await open(t);
    const { repositories, ledger } = store;
    const left = claimOf(store);
    await repositories.claimRequest(left);
    await repositories.leaveRequest(left);
    assert.equal((await repositories.claimRequest(again(left, { fingerprint: hash() }))).outcome, 'claimed');

    const kept: RequestClaim[] = [];
    for (let day = 0; day < 6; day++) {
      const claim = claimOf(store, { now: (1_000 + day) * dayMs, expiredAt: 0 });
      kept.push(claim);
      await repositories.claimRequest(claim);
      await repositories.keepAnswer({ ...claim, answer: encrypted('x'.repeat(10_000)) });
      await ledger.settle(ended(claim, 'finished'));
    }
    const first = kept[0]!;
    const late = again(first, { fingerprint: hash(), expiredAt: first.now });
    assert.equal((await repositories.claimRequest(again(first, { expiredAt: first.now - 1 }))).outcome, 'answered');
    assert.equal((await repositories.claimRequest(late)).outcome, 'claimed');
    await repositories.leaveRequest(late);

    const outcomes = async (): Promise<string[]> => {
      const found = [];
      for (const claim of kept.slice(1)) {
        const asked = again(claim, { expiredAt: 0 });
        const { outcome } = await repositories.claimRequest(asked);
        if (outcome === 'claimed') await repositories.leaveRequest(asked);
        found.push(outcome);
      }
      return found;
    };
    const bounds = { accountIds: [], accountBytesMax: 25_000, bytesMax: 1e9 };
    await repositories.tidyRequests({ ...bounds, expiredAt: kept[1]!.now });
    assert.deepEqual(await outcomes(), ['claimed', 'answered', 'answered', 'answered', 'answered']);
    await repositories.tidyRequests({ ...bounds, expiredAt: 0, accountIds: ['acct_a'] });
    assert.deepEqual(await outcomes(), ['claimed', 'claimed', 'claimed', 'answered', 'answered']);
    await repositories.tidyRequests({ ...bounds, expiredAt: 0, accountIds: ['acct_z'], bytesMax: 15_000 });
    assert.deepEqual(await outcomes(), ['claimed', 'claimed', 'claimed', 'claimed', 'answered']);
  });
}
