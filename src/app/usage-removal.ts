import { setTimeout as sleep } from 'node:timers/promises';

import type { Removal, RemovalCursor } from '../store/retention/removal.ts';
import type { Store } from './stores.ts';

/** What a run has removed, and whether there is more. */
export type RemovalRun = Pick<Removal, 'removed' | 'state'>;

/** Removes usage older than its retention, and frees the space. Continues where the last run ended. */
export class UsageRemoval {
  readonly #store: Pick<Store, 'repositories' | 'now'>;
  #after: RemovalCursor | undefined;
  /** The previous process may have died after removing rows and before freeing their space. */
  #isSpaceDue = true;

  constructor(store: Pick<Store, 'repositories' | 'now'>) {
    this.#store = store;
  }

  /** Runs short transactions for a few seconds, leaving as much time for others in between. */
  async run(forMs: number, signal?: AbortSignal): Promise<RemovalRun> {
    const { repositories, now } = this.#store;
    const endMs = performance.now() + forMs;
    const isOver = (): boolean => signal?.aborted === true || performance.now() >= endMs;
    let removed = 0;
    if ((await repositories.retentionOf({})).keptSince === 0) return { removed, state: 'done' };
    do {
      const startMs = performance.now();
      const step = await repositories.removeUsage({ after: this.#after, now: now() });
      this.#after = step.next;
      removed += step.removed;
      if (step.removed > 0) this.#isSpaceDue = true;
      if (step.state === 'elsewhere') return { removed, state: 'elsewhere' };
      if (step.state === 'done') return { removed, state: await this.#freeSpace(isOver) };
      await sleep(performance.now() - startMs);
    } while (!isOver());
    return { removed, state: 'more' };
  }

  async #freeSpace(isOver: () => boolean): Promise<'done' | 'more'> {
    while (this.#isSpaceDue) {
      const startMs = performance.now();
      const freed = await this.#store.repositories.freeUsageSpace({});
      this.#isSpaceDue = freed !== 'done';
      if (freed === 'later') break;
      if (this.#isSpaceDue && isOver()) return 'more';
      await sleep(performance.now() - startMs);
    }
    return 'done';
  }
}
