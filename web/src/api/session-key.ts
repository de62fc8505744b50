import { send } from './use-api.ts';
import { accountId } from './account-choice.ts';

/** The key with which pages of the console call models: of this session and account, in no list, in the memory of the page alone. */
export interface SessionKey {
  readonly secret: string;
  /** Unix seconds. */
  readonly expiresAt: number;
}

/** What it can spend, in cents, as the API has it. */
export const sessionKeyCents = 100;

let kept: { readonly account: string; readonly made: Promise<SessionKey> } | undefined;

/** `isRefused`: the host has refused the one that was made, as after another sign-in. */
export async function sessionKey({ isRefused = false } = {}): Promise<SessionKey> {
  const account = accountId() ?? '';
  if (kept?.account !== account || isRefused || (await isOver(kept.made))) {
    const made = send('post', '/v1/keys/session').then(({ key, expires_at: expiresAt }) => ({
      secret: key,
      expiresAt,
    }));
    kept = { account, made };
    made.catch(() => {
      if (kept?.made === made) kept = undefined;
    });
  }
  return await kept.made;
}

const marginSeconds = 60;

const isOver = async (made: Promise<SessionKey>): Promise<boolean> =>
  (await made).expiresAt - marginSeconds < Date.now() / 1000;
