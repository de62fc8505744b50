import type { Desk } from '../operations.ts';
import type { Feed, Follows } from '../feed.ts';

/** The only process on its file makes every change itself. */
export async function followAlone(desk: Desk, follower: Follows): Promise<Feed> {
  await follower.loadAll(desk);
  const known = (): Promise<boolean> => Promise.resolve(true);
  return { isShared: false, isStale: false, freshen: known, catchUp: known, close: () => Promise.resolve() };
}
