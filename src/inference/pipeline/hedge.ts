import type { GenerationBatch, TakeBatch } from '../../generation/event.ts';
import { StopSlot } from '../../platform/stop-signal.ts';
import type { StopSignal } from '../../platform/stop-signal.ts';

/** A request placed at one backend. */
export interface Runner {
  /** Runs it until its answer is over, as an engine's `generate` does. */
  generate(signal: StopSignal, take: TakeBatch): Promise<void>;
  /** The other one has given content first, and this one is stopped. */
  slower(): void;
  /** It has stopped, or has failed. Called for the runner that does not decide the outcome. */
  ended(failed: { readonly error: unknown } | undefined): void;
}

export interface Race<Member extends Runner> {
  readonly signal: StopSignal;
  readonly take: TakeBatch;
  readonly hasContent: (batch: GenerationBatch) => boolean;
  /** Delay without content before a second backend is tried. */
  readonly afterMs: number;
  /** Places the request at another backend; `undefined`: none is free, or too many requests were hedged already. */
  readonly second: () => Member | undefined;
  /** Called when the second one gives content first, before that content is taken. */
  readonly secondWins: (member: Member) => void;
}

/**
 * Runs a request at a backend, and after a delay without content at a second one too. The first to give content wins and is the only one
 * that is read; the other is stopped immediately (docs/decisions/045-hedging.md). Settles as the winner does; if neither wins, rejects with
 * the first one's failure.
 */
export async function hedge<Member extends Runner>(first: Member, race: Race<Member>): Promise<void> {
  const { signal, afterMs, second } = race;
  const lanes = new Lanes(race);
  const stopAll = (): void => lanes.stop(signal.reason);
  signal.addEventListener('abort', stopAll);
  let timer: NodeJS.Timeout | undefined;
  try {
    const lane = lanes.open(first);
    await Promise.race([lane.over, new Promise<void>((due) => (timer = setTimeout(due, afterMs)))]);
    const isDue = lanes.winner === undefined && !lane.isOver && !signal.aborted;
    const member = isDue ? second() : undefined;
    const other = member === undefined ? undefined : lanes.open(member);
    if (other !== undefined) await Promise.race([lane.over, other.over]);
    // If one has failed, or was slower, the other decides.
    if (lanes.winner !== undefined) await lanes.winner.over;
    else await Promise.all([lane.over, other?.over]);
    const { failed } = lanes.winner ?? lane;
    if (failed !== undefined) throw failed.error;
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', stopAll);
  }
}

interface Lane<Member> {
  readonly member: Member;
  readonly stop: StopSlot<unknown>;
  /** Batches received before its first content. */
  readonly held: GenerationBatch[];
  /** Never rejects. */
  over: Promise<void>;
  isOver: boolean;
  failed: { readonly error: unknown } | undefined;
}

class Lanes<Member extends Runner> {
  readonly #race: Race<Member>;
  readonly #lanes: Lane<Member>[] = [];
  winner: Lane<Member> | undefined;

  constructor(race: Race<Member>) {
    this.#race = race;
  }

  open(member: Member): Lane<Member> {
    const lane: Lane<Member> = {
      member,
      stop: new StopSlot(),
      held: [],
      over: Promise.resolve(),
      isOver: false,
      failed: undefined,
    };
    this.#lanes.push(lane);
    lane.over = this.#run(lane);
    return lane;
  }

  stop(reason: unknown): void {
    for (const { stop } of this.#lanes) stop.stop(reason);
  }

  async #run(lane: Lane<Member>): Promise<void> {
    try {
      await lane.member.generate(lane.stop, (batch) => this.#take(lane, batch));
    } catch (error) {
      lane.failed = { error };
    }
    lane.isOver = true;
    const decides = this.winner === undefined ? lane === this.#lanes[0] : lane === this.winner;
    if (!decides) lane.member.ended(this.winner === undefined ? lane.failed : undefined);
  }

  #take(lane: Lane<Member>, batch: GenerationBatch): boolean | Promise<boolean> {
    const { take, hasContent } = this.#race;
    if (this.winner === lane) return take(batch);
    if (this.winner !== undefined) return false;
    if (!hasContent(batch)) {
      lane.held.push(batch);
      return true;
    }
    this.#win(lane);
    return takeAll([...lane.held.splice(0), batch], take);
  }

  #win(lane: Lane<Member>): void {
    this.winner = lane;
    const [first] = this.#lanes;
    if (lane !== first) this.#race.secondWins(lane.member);
    for (const other of this.#lanes) {
      if (other === lane) continue;
      // It failed earlier, when it could still have decided the outcome; a second one that failed already got its `ended` call.
      if (other.isOver) {
        if (other === first) other.member.ended(other.failed);
        continue;
      }
      other.member.slower();
      other.stop.stop('slower');
    }
  }
}

async function takeAll(batches: readonly GenerationBatch[], take: TakeBatch): Promise<boolean> {
  for (const batch of batches) if (!(await take(batch))) return false;
  return true;
}
