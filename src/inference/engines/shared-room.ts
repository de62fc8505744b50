/** `room`: to make room for another that waits. */
export type LeaveReason = 'idle' | 'room';

/** Who shares a room, as the room sees it: the engine of a model, or a server. */
export interface Occupant {
  /** Whether it stays once it is in. */
  readonly isPinned: boolean;
  /** Whether it has no work. */
  readonly isIdle: boolean;
  /** When it last had work. */
  readonly usedMs: number;
  /** How long it works before it makes room for one that waits, where that depends on it. */
  readonly turnMs?: number;
  /** Nobody has used it for so long that lines of batches may have its place. */
  readonly isUnused?: boolean;
  /** Called when there is room: it loads, or continues. */
  enter(): void;
  /** Called when another one waits: it finishes what it has begun, and begins nothing new. */
  hold(): void;
  /** Resolves when it has left completely. */
  leave(reason: LeaveReason): Promise<void>;
  /** Whether requests have come for it since it had to make room. */
  readonly isWanted: boolean;
}

type Place =
  | { readonly kind: 'out' }
  | { readonly kind: 'waiting' }
  /** `sinceMs`: when it was loaded; infinite until then, so that it has its turn however long loading takes. */
  | { readonly kind: 'in'; readonly sinceMs: number; readonly isHeld: boolean }
  | { readonly kind: 'leaving' };

export interface RoomOptions<Claim> {
  /** How long an occupant works before it has to make room for one that waits. */
  readonly turnMs: number;
  /** What is free may change without notice. */
  readonly recheckMs: number;
  /** Whether a claim fits beside the `others`, once those in `leaving` have left. */
  fits(claim: Claim, others: readonly Claim[], leaving: readonly Claim[]): boolean;
  /** Called when all who waited are in. */
  settled?(): void;
}

/**
 * A room that not all fit into at once: the computer's memory, or a GPU. Who waits longest is served first, and nobody overtakes. To make
 * room, idle occupants leave, the least recently used first; if that is not enough, the one that has been there longest finishes its turn
 * and what it has begun, and leaves.
 */
export class SharedRoom<Claim extends RoomClaim> {
  readonly #options: RoomOptions<Claim>;
  /** In the order in which they were added, or started to wait. */
  readonly #claims = new Set<Claim>();
  #timer: NodeJS.Timeout | undefined;

  constructor(options: RoomOptions<Claim>) {
    this.#options = options;
  }

  get claims(): readonly Claim[] {
    return [...this.#claims];
  }

  get resident(): readonly Claim[] {
    return this.claims.filter(({ place }) => place.kind === 'in' || place.kind === 'leaving');
  }

  /** It enters only after a request. */
  add(claim: Claim): Claim {
    this.#claims.add(claim);
    return claim;
  }

  requested(claim: Claim): void {
    if (claim.place.kind !== 'out') return;
    claim.place = { kind: 'waiting' };
    // Moves to the end of the queue.
    this.#claims.delete(claim);
    this.#claims.add(claim);
    this.settle();
  }

  isFreeFor(claim: Claim): boolean {
    return this.#waiting() === undefined && this.#fits(claim, []);
  }

  /** Whether it could enter without taking the place of one that is used. */
  isSpareFor(claim: Claim): boolean {
    return this.#waiting() === undefined && this.#fits(claim, this.#unused());
  }

  requestedIfSpare(claim: Claim): boolean {
    if (!this.isSpareFor(claim)) return false;
    const leaving: Claim[] = [];
    for (const unused of this.#unused()) {
      if (this.#fits(claim, leaving)) break;
      leaving.push(unused);
      this.makeLeave(unused);
    }
    this.requested(claim);
    return true;
  }

  #unused(): readonly Claim[] {
    return this.victims().filter(({ occupant }) => occupant.isUnused === true);
  }

  forget(claim: Claim): void {
    this.#claims.delete(claim);
    claim.place = { kind: 'out' };
    this.settle();
  }

  /** Admits those who wait, or makes room for them. */
  settle(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    for (let next = this.#waiting(); next !== undefined; next = this.#waiting()) {
      if (!this.#fits(next, [])) return this.#makeRoom(next);
      next.enter();
    }
    for (const claim of this.#claims)
      if (claim.place.kind === 'in' && claim.place.isHeld) {
        claim.place = { ...claim.place, isHeld: false };
        claim.occupant.enter();
      }
    this.#options.settled?.();
  }

  #waiting(): Claim | undefined {
    return this.claims.find(({ place }) => place.kind === 'waiting');
  }

  #fits(claim: Claim, leaving: readonly Claim[]): boolean {
    const others = this.resident.filter((each) => !leaving.includes(each));
    return this.#options.fits(claim, others, leaving);
  }

  #makeRoom(next: Claim): void {
    const leaving = this.resident.filter(({ place }) => place.kind === 'leaving');
    const isEnough = (): boolean => this.#fits(next, leaving);
    for (const idle of this.victims().filter(({ occupant }) => occupant.isIdle)) {
      if (isEnough()) return;
      leaving.push(idle);
      this.makeLeave(idle);
    }
    const nowMs = performance.now();
    let waitMs = this.#options.recheckMs;
    for (const busy of this.victims().toSorted((a, b) => sinceOf(a) - sinceOf(b))) {
      if (isEnough()) break;
      leaving.push(busy);
      const turnLeftMs = sinceOf(busy) + (busy.occupant.turnMs ?? this.#options.turnMs) - nowMs;
      if (turnLeftMs > 0) waitMs = Math.min(waitMs, turnLeftMs);
      else if (busy.place.kind === 'in' && !busy.place.isHeld) {
        busy.place = { ...busy.place, isHeld: true };
        busy.occupant.hold();
      }
    }
    this.#timer = setTimeout(() => this.settle(), waitMs);
    this.#timer.unref();
  }

  /** Returns those that may have to leave, the least recently used first. */
  victims(): readonly Claim[] {
    return this.claims
      .filter(({ place, occupant }) => place.kind === 'in' && !occupant.isPinned)
      .sort((a, b) => a.occupant.usedMs - b.occupant.usedMs);
  }

  makeLeave(claim: Claim, reason: LeaveReason = 'room'): void {
    claim.place = { kind: 'leaving' };
    void claim.occupant.leave(reason).then(() => {
      if (claim.place.kind !== 'leaving') return;
      claim.place = { kind: 'out' };
      if (claim.occupant.isWanted) this.requested(claim);
      else this.settle();
    });
  }
}

/** What a room knows of a claim on it. */
type RoomOf<Claim> = Pick<
  SharedRoom<Claim & RoomClaim>,
  'requested' | 'requestedIfSpare' | 'isFreeFor' | 'isSpareFor' | 'makeLeave' | 'settle' | 'forget' | 'resident'
>;

/** A place in a room, until it is released. */
export class RoomClaim {
  // Each room has claims of one kind, its own.
  readonly #in: RoomOf<this>;
  readonly occupant: Occupant;
  place: Place = { kind: 'out' };

  constructor(room: unknown, occupant: Occupant) {
    this.#in = room as RoomOf<this>;
    this.occupant = occupant;
  }

  get isWaiting(): boolean {
    return this.place.kind === 'waiting';
  }

  enter(): void {
    this.place = { kind: 'in', sinceMs: Infinity, isHeld: false };
    this.occupant.enter();
  }

  /** Enters when there is room; idle occupants make room immediately, busy ones after their turn. First come, first served. */
  request(): void {
    this.#in.requested(this);
  }

  /** Enters now if there is room and nobody else waits; returns whether it has. */
  requestIfFree(): boolean {
    if (this.place.kind !== 'out' || !this.#in.isFreeFor(this)) return false;
    this.enter();
    return true;
  }

  get isSpare(): boolean {
    return this.place.kind === 'out' && this.#in.isSpareFor(this);
  }

  /** The same as `request` where that takes the place of nobody who is used; returns whether it is. */
  requestIfSpare(): boolean {
    return this.place.kind === 'out' && this.#in.requestedIfSpare(this);
  }

  /** Called when it is loaded: its turn begins. */
  loaded(): void {
    if (this.place.kind === 'in') this.place = { ...this.place, sinceMs: performance.now() };
  }

  /** Leaves although nobody else waits, because it has no requests. */
  leave(): void {
    if (this.place.kind === 'in') this.#in.makeLeave(this, 'idle');
  }

  /** Stops waiting. */
  withdraw(): void {
    if (!this.isWaiting) return;
    this.place = { kind: 'out' };
    this.#in.settle();
  }

  /** Called when it has become idle, or needs another part than before. */
  settle(): void {
    if (this.place.kind === 'in') this.#in.settle();
  }

  /** Nobody else is in, or on its way out. */
  get isAlone(): boolean {
    return this.#in.resident.every((each) => each === (this as RoomClaim));
  }

  release(): void {
    this.#in.forget(this);
  }
}

const sinceOf = ({ place }: RoomClaim): number => (place.kind === 'in' ? place.sinceMs : 0);
