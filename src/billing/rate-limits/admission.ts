import { ApiError, atCap } from '../../platform/errors.ts';
import type { Slot } from './slot.ts';
import type { ShedLevel } from './load.ts';

/**
 * Decides whether this process takes new work at all, for any caller: a cap on running requests, and the levels of load shedding
 * (reliability §5). Refusal comes before the work: before a large body is read and before any is parsed, so it costs a fraction of serving,
 * and running requests go on at full speed (reliability §3.1, "overload").
 *
 * On the second level the cap drops by a fifth with every sample that finds the process overloaded, and one request may always run:
 * admitting none at all would oscillate between nothing and a flood, and a process whose memory does not shrink while idle would never work
 * again. When the load is gone the cap rises, and recovers in a few seconds.
 */
export class Admission {
  #runningMax: number;
  readonly #began: () => void;
  #running = 0;
  #shedLevel: ShedLevel = 0;
  /** Below `#runningMax` while the load is too high, and for some time after. */
  #cap: number;
  /** Requests running when the load was last too high. */
  #capacityKnee = Infinity;
  #refusedSinceLook = false;
  /** Running requests with large bodies, from `takeLarge` to their end. */
  #large = 0;
  /** Consecutive samples that blamed large bodies. */
  #blamed = 0;

  /** `began` is called for each request that comes while none runs. */
  constructor(runningMax: number, began: () => void = () => {}) {
    this.#began = began;
    this.#runningMax = runningMax;
    this.#cap = runningMax;
  }

  /** Applies from the next request on; running requests go on. */
  set runningMax(value: number) {
    this.#cap = this.#cap === this.#runningMax ? value : Math.min(this.#cap, value);
    this.#runningMax = value;
  }

  get running(): number {
    return this.#running;
  }

  /** The current maximum of running requests. */
  get cap(): number {
    return this.#cap;
  }

  get shedLevel(): ShedLevel {
    return this.#shedLevel;
  }

  /** Whether the cap is lower than usual. */
  get isShedding(): boolean {
    return this.#cap < this.#runningMax;
  }

  /**
   * Applies a new load sample, four times a second. `lacksMemory`: memory, not the processor, is short.
   *
   * While large bodies are in progress, an overloaded processor is blamed on them: no more of them are admitted, and all other requests are
   * served, if slowly. This lasts ten seconds at most, by which time those admitted have been read and sent.
   */
  judged(shedLevel: ShedLevel, lacksMemory = false): void {
    if (shedLevel >= 2 && !lacksMemory && this.#large > 0 && this.#blamed < blamedLooksMax) {
      this.#blamed++;
      this.#shedLevel = 1;
      return;
    }
    if (shedLevel === 0) this.#blamed = 0;
    this.#shedLevel = shedLevel;
    if (shedLevel >= 2) {
      this.#capacityKnee = Math.min(this.#cap, this.#running);
      this.#cap = Math.max(1, Math.floor(this.#capacityKnee * capShrinks));
    } else {
      const isNearCapacity = this.#refusedSinceLook && this.#cap >= this.#capacityKnee * capacityNears;
      this.#cap = Math.min(this.#runningMax, Math.ceil(this.#cap * (isNearCapacity ? capCreeps : capGrows)) + 1);
    }
    this.#refusedSinceLook = false;
  }

  /** Throws `backend_at_capacity` 429 when a request with such a body would be refused; undefined: size not known yet. */
  check(bodyBytes: number | undefined, largeBodyBytes: number): void {
    this.#checkCap();
    if (this.#shedLevel >= 1 && bodyBytes !== undefined && bodyBytes > largeBodyBytes)
      throw atCapacity('The service is busy and does not accept large requests at the moment.', this.#cap);
  }

  /** Registers that a request has a large body, until its end. Throws like `check`. */
  takeLarge(bodyBytes: number, largeBodyBytes: number): Slot {
    this.check(bodyBytes, largeBodyBytes);
    this.#large++;
    return this.#slot(() => this.#large--);
  }

  /** Takes a slot for a request whose body has arrived. Throws `backend_at_capacity` 429 when none is free. */
  take(): Slot {
    this.#checkCap();
    this.#running++;
    return this.#slot(() => this.#running--);
  }

  #slot(release: () => void): Slot {
    let released = false;
    return {
      release: () => {
        if (released) throw new Error('a slot is released once');
        released = true;
        release();
      },
    };
  }

  #checkCap(): void {
    if (this.#running === 0) this.#began();
    if (this.#running < this.#cap) return;
    this.#refusedSinceLook = true;
    throw atCapacity('The service is at its maximum number of requests.', this.#cap);
  }
}

const capShrinks = 0.8;
/** Ten seconds, the time a large body may take to be parsed. */
const blamedLooksMax = 40;
/** Grows from one to a thousand in four seconds. */
const capGrows = 1.5;
/** Growth while demand exceeds the cap and the cap nears the last overload: a fifth in two seconds. */
const capCreeps = 1.02;
const capacityNears = 0.6;

const atCapacity = (message: string, cap: number): ApiError =>
  new ApiError('backend_at_capacity', `${message} Try again shortly.`, atCap(cap, 1));
