import type { Repositories } from '../repositories/repositories.ts';
import type { Feed, Follows } from '../feed.ts';

/** The only process on its file makes every change itself, so it hears of each from the one who has made it. */
export async function followAlone(repositories: Repositories, follower: Follows): Promise<Feed> {
  await follower.loadAll(repositories);
  return {
    isShared: false,
    isStale: false,
    freshen: () => Promise.resolve(true),
    catchUp: async (made = []) => {
      await follower.follow(made, repositories);
      return true;
    },
    close: () => Promise.resolve(),
  };
}
