import type { Repositories } from '../../store/repositories/repositories.ts';
import { StoreError } from '../../store/store-error.ts';

const triesMax = 12;

/**
 * Takes up to an amount from an account: all of it, or else what the account has free of holds, or else less, down to nothing. `take` moves
 * exactly the amount it is given (`insufficient`: try less); the amount moved, if any, is in what it records, so a `conflict` also ends the
 * search: another process has taken it.
 */
export async function spendable(
  repositories: Pick<Repositories, 'getAccount' | 'heldOf'>,
  accountId: string,
  wanted: bigint,
  take: (microcents: bigint) => Promise<boolean>,
): Promise<void> {
  let amount = wanted;
  for (let tries = 0; ; tries++) {
    try {
      await take(amount);
      return;
    } catch (error) {
      if (!(error instanceof StoreError)) throw error;
      if (error.code === 'conflict') return;
      if (error.code !== 'insufficient' || amount === 0n) throw error;
    }
    const account = await repositories.getAccount({ accountId });
    const { microcents: held } = await repositories.heldOf({ accountId });
    const has = account === undefined ? 0n : account.balanceMicrocents + account.creditLimitMicrocents - held;
    // Holds come and go, and only their process knows the newest: if even the apparently free amount fails, try half.
    const less = tries === 0 ? amount - 1n : amount / 2n;
    amount = tries >= triesMax || has <= 0n ? 0n : less < has ? less : has;
  }
}
