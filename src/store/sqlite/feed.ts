import { setTimeout as sleep } from 'node:timers/promises';

import type { Repositories } from '../repositories/repositories.ts';
import type { Feed, Follows } from '../feed.ts';
import { StoreError } from '../store-error.ts';

const againMs = 100;

/** The only process on its file makes every change itself, so the caller that makes a change reports it. */
export async function followAlone(repositories: Repositories, follower: Follows): Promise<Feed> {
  await follower.loadAll(repositories);
  let isClosed = false;
  return {
    isShared: false,
    isStale: false,
    freshen: () => Promise.resolve(true),
    // A revoked key must not keep working because a query failed: durable changes are read until that succeeds.
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
