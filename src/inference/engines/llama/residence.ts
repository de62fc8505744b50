import type { ApiError } from '../../../platform/errors.ts';
import type { ResidenceReport } from '../engine.ts';
import type { Supervisor } from './child-process.ts';
import type { LeaveReason } from '../shared-room.ts';
import type { Occupant } from '../shared-room.ts';
import type { MemoryClaim } from './memory-budget.ts';

/** Work that needs the model in memory. */
export interface Waiting {
  /** Called once when the model is there, perhaps immediately. */
  begin(): void;
  /** Called if the model will not be there. */
  fail(error: ApiError): void;
}

export interface ResidenceOptions {
  readonly isPinned: boolean;
  /** Whether no work that has begun is still running. */
  readonly isIdle: () => boolean;
  /** Called when it starts to wait for memory. */
  readonly onWait: (bytes: number) => void;
}

/** A model's place in memory, and the queue of work that waits for it; the submitter bounds the queue. */
export class Residence implements Occupant {
  readonly #options: ResidenceOptions;
  readonly #waiting = new Set<Waiting>();
  #home: { readonly claim: MemoryClaim; readonly supervisor: Supervisor } | undefined;
  /** Whether it is in memory, or may be loaded, and does not have to make room. */
  #admits = false;
  usedMs = performance.now();

  constructor(options: ResidenceOptions) {
    this.#options = options;
  }

  settleIn(claim: MemoryClaim, supervisor: Supervisor): void {
    this.#home = { claim, supervisor };
  }

  get state(): ResidenceReport['state'] {
    if (this.#home === undefined) return 'unloaded';
    const { claim, supervisor } = this.#home;
    if (claim.isWaiting) return 'waiting';
    if (supervisor.isLoaded) return 'loaded';
    return this.#admits ? 'loading' : 'unloaded';
  }

  /** Begins the work, now or when the model is in memory. */
  run(work: Waiting): void {
    this.usedMs = performance.now();
    this.#waiting.add(work);
    if (this.#admits) this.enter();
    else this.#request();
  }

  /** Drops work that is no longer wanted. */
  drop(work: Waiting): void {
    this.usedMs = performance.now();
    if (this.#waiting.delete(work) && this.#waiting.size === 0) this.#home?.claim.withdraw();
    if (this.isIdle) this.#home?.claim.settle();
  }

  failAll(error: () => ApiError): void {
    const all = [...this.#waiting];
    this.#waiting.clear();
    for (const work of all) work.fail(error());
  }

  /** Called when the child is ready for work. */
  loaded(): void {
    this.#home?.claim.loaded();
    if (this.#admits) this.enter();
  }

  #request(): void {
    if (this.#home === undefined) return;
    const { claim } = this.#home;
    const waitedBefore = claim.isWaiting;
    claim.request();
    if (claim.isWaiting && !waitedBefore) this.#options.onWait(claim.bytes);
  }

  get isPinned(): boolean {
    return this.#options.isPinned;
  }

  /** Work that waits during loading counts as its work: otherwise two models would push each other out forever. */
  get isIdle(): boolean {
    return this.#options.isIdle() && !(this.#admits && this.isWanted);
  }

  get isWanted(): boolean {
    return this.#waiting.size > 0;
  }

  enter(): void {
    this.#admits = true;
    if (this.#home === undefined) return;
    this.#home.supervisor.start();
    if (!this.#home.supervisor.isLoaded) return;
    for (const work of this.#waiting) {
      this.#waiting.delete(work);
      work.begin();
    }
  }

  hold(): void {
    this.#admits = false;
  }

  async leave(reason: LeaveReason): Promise<void> {
    this.#admits = false;
    await this.#home?.supervisor.unload(reason);
  }
}
