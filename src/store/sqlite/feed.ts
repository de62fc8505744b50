import type { Repositories } from '../repositories/repositories.ts';
import type { Feed, Follows } from '../feed.ts';

/** The only process on its file makes every change itself. */
export async function followAlone(repositories: Repositories, follower: Follows): Promise<Feed> {
  await follower.loadAll(repositories);
  const known = (): Promise<boolean> => Promise.resolve(true);
  return { isShared: false, isStale: false, freshen: known, catchUp: known, close: () => Promise.resolve() };
}
