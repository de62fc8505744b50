import { setTimeout as sleep } from 'node:timers/promises';
import { withDeadline } from '../../platform/deadline.ts';
import type { Change, Feed, FollowedRepositories, Follows } from '../feed.ts';
import type { OwnerPort } from './protocol.ts';

/** When the owner was last heard of earlier, or a change takes longer to arrive, nothing is admitted from memory. */
const staleAfterMs = 1_000;
const againMs = 100;
/** Up to this many changes are followed one by one; beyond that everything is read anew. */
const changesMax = 1_000;

/** `following` and `unreadable` have loaded everything; `unreadable` has logged that changes cannot be read. */
type State =
  | { readonly kind: 'loading' }
  | { readonly kind: 'following' | 'unreadable'; readonly follower: Follows }
  | { readonly kind: 'closed' };

/** Changes as the owner of the ledger reports them. What it reported before a heartbeat is known here at the heartbeat. */
export class RemoteFeed implements Feed {
  readonly isShared = true;
  readonly #port: OwnerPort;
  readonly #repositories: FollowedRepositories;
  readonly #log: (level: 'info' | 'warn', message: string) => void;
  #state: State = { kind: 'loading' };
  #heardMs = performance.now();
  /** Reported, and not yet in force. */
  #pending: Change[] = [];
  #pendingSinceMs = Infinity;
  #following: Promise<void> | undefined;

  constructor(
    port: OwnerPort,
    repositories: FollowedRepositories,
    log: (level: 'info' | 'warn', message: string) => void,
  ) {
    this.#port = port;
    this.#repositories = repositories;
    this.#log = log;
    port.handle({
      heartbeat: () => void (this.#heardMs = performance.now()),
      changes: (changes) => this.#reported(changes),
    });
  }

  /** Resolves when all is loaded. Rejects when that failed. */
  async start(follower: Follows): Promise<void> {
    await follower.loadAll(this.#repositories);
    this.#go('following', follower);
    await this.#reported([]);
  }

  get silentMs(): number {
    return performance.now() - this.#heardMs;
  }

  get isStale(): boolean {
    return this.silentMs > staleAfterMs || performance.now() - this.#pendingSinceMs > staleAfterMs;
  }

  freshen(): Promise<boolean> {
    return this.catchUp();
  }

  catchUp(): Promise<boolean> {
    return withDeadline(this.#look(), staleAfterMs, () => false);
  }

  close(): Promise<void> {
    this.#state = { kind: 'closed' };
    return Promise.resolve();
  }

  async #look(): Promise<boolean> {
    try {
      await this.#port.call('look', null);
    } catch {
      return false;
    }
    this.#heardMs = performance.now();
    await this.#following;
    return true;
  }

  /** Resolves when they are in force. */
  async #reported(changes: readonly Change[]): Promise<void> {
    if (changes.length > 0) {
      this.#pending.push(...changes);
      this.#pendingSinceMs = Math.min(this.#pendingSinceMs, performance.now());
    }
    // Reported before all is loaded: then they are included, or are followed after it.
    if (this.#state.kind === 'loading') return;
    this.#following ??= this.#followAll().finally(() => (this.#following = undefined));
    await this.#following;
  }

  async #followAll(): Promise<void> {
    while (this.#pending.length > 0) {
      const state = this.#state;
      if (state.kind === 'loading' || state.kind === 'closed') return;
      const { follower } = state;
      const changes = this.#pending;
      this.#pending = [];
      try {
        if (changes.length > changesMax) await follower.loadAll(this.#repositories);
        else await follower.follow(changes, this.#repositories);
        this.#pendingSinceMs = this.#pending.length > 0 ? performance.now() : Infinity;
        if (state.kind === 'unreadable') this.#log('info', 'changes of keys and prices are followed again');
        this.#go('following', follower);
      } catch (error) {
        this.#pending = [...changes, ...this.#pending];
        if (state.kind === 'following') {
          const reason = error instanceof Error ? error.message : String(error);
          this.#log('warn', `changes of keys and prices cannot be read, so new requests are refused: ${reason}`);
        }
        this.#go('unreadable', follower);
        await sleep(againMs);
      }
    }
  }

  /** Once closed it stays so. */
  #go(kind: 'following' | 'unreadable', follower: Follows): void {
    if (this.#state.kind !== 'closed') this.#state = { kind, follower };
  }
}
