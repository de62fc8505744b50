import type { ApiError } from '../../../platform/errors.ts';
import type { ResidenceReport } from '../engine.ts';
import type { Supervisor, UnloadReason } from './child-process.ts';
import type { MemoryClaim, Occupant } from './memory-budget.ts';

/** Work that needs the model in memory. */
export interface Waiting {
  /** The model is there: called once, perhaps at once. */
  begin(): void;
  /** It will not be there. */
  fail(error: ApiError): void;
}

export interface ResidenceOptions {
  readonly isPinned: boolean;
  /** Of the work that has begun, none is under way. */
  readonly isIdle: () => boolean;
  /** It begins to wait for memory. */
  readonly onWait: (bytes: number) => void;
}

/** A model's place in memory, and the work that waits for it, in its order: the submitter bounds it. */
export class Residence implements Occupant {
  readonly #options: ResidenceOptions;
  readonly #waiting = new Set<Waiting>();
  #home: { readonly claim: MemoryClaim; readonly supervisor: Supervisor } | undefined;
  /** It is in memory, or may be loaded, and has not to make room. */
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

  /** The work is not wanted any more. */
  drop(work: Waiting): void {
    this.usedMs = performance.now();
    if (this.#waiting.delete(work) && this.#waiting.size === 0) this.#home?.claim.withdraw();
    if (this.isIdle) this.#home?.claim.idle();
  }

  failAll(error: () => ApiError): void {
    const all = [...this.#waiting];
    this.#waiting.clear();
    for (const work of all) work.fail(error());
  }

  /** The child can work. */
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

  /** What waits while it is being loaded is its work already: otherwise two models would push each other out for ever. */
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

  async leave(reason: UnloadReason): Promise<void> {
    this.#admits = false;
    await this.#home?.supervisor.unload(reason);
  }
}
