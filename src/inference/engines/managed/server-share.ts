import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { ServerMemory } from '../engine.ts';
import type { HeldMemory } from './held-memory.ts';

export interface ServerShareOptions {
  /** Servers with the same word share one GPU, or one memory; `undefined`: it shares with nobody. */
  readonly group: string | undefined;
  /** Above 0, at most 1, by the configuration. */
  readonly share: number | undefined;
  /** Where it is kept what the server was seen to hold. */
  readonly file: string;
  /** Another command may hold something else. */
  readonly commandHash: string;
}

/** The part of its group that a server needs: what the configuration says, or what it was seen to hold, or, as long as neither is known, all of it. */
export class ServerShare {
  readonly #options: ServerShareOptions;
  #learned: HeldMemory | undefined;
  #isDoubted = false;

  constructor(options: ServerShareOptions) {
    this.#options = options;
    this.#learned = options.group === undefined ? undefined : readLearned(options);
  }

  get group(): string | undefined {
    return this.#options.group;
  }

  get part(): number {
    const { share } = this.#options;
    if (share !== undefined) return share;
    return this.#learned === undefined || this.#isDoubted ? 1 : Math.min(1, learnedMargin * partOf(this.#learned));
  }

  get reading(): ServerMemory | undefined {
    const { group, share: declared } = this.#options;
    const learned = this.#learned;
    if (group === undefined) return undefined;
    const exceeds =
      declared !== undefined && learned !== undefined && partOf(learned) > declared + declaredMargins[learned.on];
    return { group, declared, learned, exceeds, isDoubted: declared === undefined && this.#isDoubted };
  }

  /** Returns whether that is more than was known, by so much that it is of note. */
  saw(held: HeldMemory): boolean {
    const before = this.#learned;
    if (before?.on === held.on && partOf(held) < stepOfNote * partOf(before)) return false;
    this.#learned = held;
    const { file, commandHash } = this.#options;
    try {
      mkdirSync(path.dirname(file), { recursive: true });
      writeFileSync(file, JSON.stringify({ commandHash, ...held }), { mode: 0o600 });
    } catch {
      // It is learned again at the next start.
    }
    return true;
  }

  /** It was not loaded, or was killed, while others were there: until the end of the service it gets all of the group, if the configuration says nothing else. */
  failedBesideOthers(): void {
    this.#isDoubted = true;
  }
}

/** Memory that is taken for moments only is not seen. */
const learnedMargin = 1.1;
const stepOfNote = 1.02;
/** A driver needs a little for itself beside what a server was told to take. */
const declaredMargins = { gpu: 0.02, memory: 0 } as const;

const partOf = ({ bytes, ofBytes }: HeldMemory): number => bytes / ofBytes;

function readLearned({ file, commandHash }: ServerShareOptions): HeldMemory | undefined {
  try {
    const { commandHash: of, on, bytes, ofBytes } = JSON.parse(readFileSync(file, 'utf8')) as Record<string, unknown>;
    if (of !== commandHash || (on !== 'gpu' && on !== 'memory')) return undefined;
    return typeof bytes === 'number' && typeof ofBytes === 'number' && bytes > 0 && ofBytes > 0
      ? { on, bytes, ofBytes }
      : undefined;
  } catch {
    return undefined;
  }
}
