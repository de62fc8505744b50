import { setTimeout as sleep } from 'node:timers/promises';

import type { Repositories } from '../repositories/repositories.ts';
import type { Feed, Follows } from '../feed.ts';
import { StoreError } from '../store-error.ts';

const againMs = 100;

/** The only process on its file makes every change itself, so it hears of each from the one who has made it. */
export async function followAlone(repositories: Repositories, follower: Follows): Promise<Feed> {
  await follower.loadAll(repositories);
  let isClosed = false;
  return {
    isShared: false,
    isStale: false,
    freshen: () => Promise.resolve(true),
    // A revoked key must not go on working because a query failed: what is durable is read again until it has been read.
    catchUp: async (made = []) => {
      while (!isClosed) {
        try {
          await follower.follow(made, repositories);
          return true;
        } catch (error) {
          if (!(error instanceof StoreError)) throw error;
          await sleep(againMs);
        }
      }
      return false;
    },
    close: () => {
      isClosed = true;
      return Promise.resolve();
    },
  };
}
