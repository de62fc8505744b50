import type { Desk } from '../operations.ts';
import type { Feed, Follows } from '../feed.ts';

/** The only process on its file makes every change itself. */
export async function followAlone(desk: Desk, follower: Follows): Promise<Feed> {
  await follower.loadAll(desk);
  return { isShared: false, isStale: false, catchUp: () => Promise.resolve(true), close: () => Promise.resolve() };
}
