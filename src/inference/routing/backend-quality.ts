import type { Usage } from '../../generation/event.ts';
import { requestSeconds } from '../../platform/metrics/bounds.ts';
import { Buckets } from '../../platform/metrics/registry.ts';

/** What is counted of a backend's answers; nothing of their content. */
export const counted = [
  'answered',
  'failed',
  'promptTokens',
  'cachedTokens',
  'completionTokens',
  'generatedCentiseconds',
  /** Tool calls, those whose arguments were held against the schema, and what was wrong with them. */
  'calls',
  'callsChecked',
  'callsUnreadable',
  'callsUnknown',
  'callsMisfit',
  'callsInText',
  /** Answers in a form that was asked for, and those that do not have it. */
  'forms',
  'formsMisfit',
] as const;
export type Counted = (typeof counted)[number];
export type Counts = Readonly<Record<Counted, number>>;

/** What was found in one answer with tool calls or a form. */
export type Findings = Pick<Counts, Extract<Counted, `calls${string}` | `forms${string}`>>;

export const hasWrongCall = ({ callsUnreadable, callsUnknown, callsMisfit, callsInText }: Findings): boolean =>
  callsUnreadable + callsUnknown + callsMisfit + callsInText > 0;

/** What backends are compared by: the answers with calls, those in a form, and all requests. */
export const compared = ['calls', 'forms', 'errors'] as const;
export type Compared = (typeof compared)[number];

/** Accounts differ in what they ask, and go where their prompts are cached, so they are compared apart, in this many groups. */
export const groupsMax = 16;
const trialsFrom = counted.length;
const width = trialsFrom + 2 * groupsMax * compared.length;

/** The cell of the trials of a group; that of its failures follows. */
export const trialCell = (by: Compared, group: number): number =>
  trialsFrom + 2 * (compared.indexOf(by) * groupsMax + group);

/** Sums over a sliding time, in a ring of buckets. */
export class SlidingSums {
  readonly sums = new Uint32Array(width);
  readonly #rows: Uint32Array;
  readonly #bucketMs: number;
  readonly #buckets: number;
  #bucket = 0;

  constructor(bucketMs: number, buckets: number) {
    this.#bucketMs = bucketMs;
    this.#buckets = buckets;
    this.#rows = new Uint32Array(width * buckets);
  }

  /** Drops what is older than the time. Must be called before anything is added or read. */
  advance(nowMs: number): void {
    const bucket = Math.floor(nowMs / this.#bucketMs);
    const oldest = Math.max(this.#bucket + 1, bucket - this.#buckets + 1);
    for (let next = oldest; next <= bucket; next++) {
      const from = (next % this.#buckets) * width;
      for (let cell = 0; cell < width; cell++) this.sums[cell]! -= this.#rows[from + cell]!;
      this.#rows.fill(0, from, from + width);
    }
    this.#bucket = Math.max(this.#bucket, bucket);
  }

  add(cell: number, amount: number): void {
    this.sums[cell]! += amount;
    this.#rows[(this.#bucket % this.#buckets) * width + cell]! += amount;
  }

  /** Forgets the trials of one kind. */
  forget(by: Compared): void {
    const from = trialCell(by, 0);
    const to = from + 2 * groupsMax;
    this.sums.fill(0, from, to);
    for (let row = 0; row < this.#buckets; row++) this.#rows.fill(0, row * width + from, row * width + to);
  }
}

/** Why a backend is used less than its peers. */
export interface Worse {
  readonly by: Compared;
  readonly sinceMs: number;
  /** The share that it failed when that was found, and the share that its peers fail. */
  readonly share: number;
  peersShare: number;
  /** The evidence that it is as good as its peers again: the logarithm of a likelihood ratio. */
  relief: number;
}

/** How long a complete answer took. */
export interface AnswerTimes {
  /** From the call of the backend to the first content; undefined: there was none. */
  readonly firstTokenMs: number | undefined;
  /** From there to the end. */
  readonly generatedMs: number;
}

/** A conversation, if it is known. */
export type Conversation = number | string | undefined;

const conversationsMax = 64;
const hourMs = 3_600_000;
/** A server that ends fails all of its requests together, which is one event and not many. */
const failuresTogetherMs = 1_000;
/** A backend whose peers fail nearly as much as it did is not worse than them. */
export const alikeRatio = 1.5;
/** Near 0 or 1 a single answer would decide. */
const shareMin = 0.005;
const shareMax = 0.9;

/** What the answers of a backend of a model were like since the start, and over the last five minutes and the last hour. Takes 11 kB. */
export class BackendQuality {
  readonly totals = new Float64Array(counted.length);
  readonly lately = new SlidingSums(30_000, 10);
  readonly hour = new SlidingSums(300_000, 12);
  /** Seconds from its call to the first content, since the start. */
  readonly firstTokens = new Buckets(requestSeconds);
  worse: Worse | undefined;
  /** Requests of its model that went elsewhere since it last got one, while it is worse. */
  passed = 0;
  #failedMs = -Infinity;
  /** Conversations that it failed, and when: one that goes on after a failure often meets it again, by no fault of the backend. */
  readonly #failedConversations = new Map<number | string, number>();

  answered(
    { promptTokens, cachedTokens, completionTokens }: Usage,
    { firstTokenMs, generatedMs }: AnswerTimes,
    nowMs: number,
  ): void {
    this.advance(nowMs);
    if (firstTokenMs !== undefined) this.firstTokens.observe(firstTokenMs / 1_000);
    this.#count(0, 1);
    this.#count(2, promptTokens);
    this.#count(3, cachedTokens);
    // Without a time that they took, they say nothing about its speed.
    if (generatedMs <= 0) return;
    this.#count(4, completionTokens);
    this.#count(5, Math.round(generatedMs / 10));
  }

  failed(nowMs: number): void {
    this.advance(nowMs);
    this.#count(1, 1);
  }

  found(findings: Findings, nowMs: number): void {
    this.advance(nowMs);
    for (let cell = 6; cell < counted.length; cell++) this.#count(cell, findings[counted[cell] as keyof Findings]);
  }

  /** Counts one answer for the comparison with its peers. */
  tried(by: Compared, isFailed: boolean, group: number, conversation: Conversation, nowMs: number): void {
    if (isFailed && this.#isRepeated(by, conversation, nowMs)) return;
    this.advance(nowMs);
    const cell = trialCell(by, group);
    this.#add(cell, 1);
    if (isFailed) this.#add(cell + 1, 1);
    const { worse } = this;
    if (worse?.by !== by) return;
    const good = Math.max(shareMin, worse.peersShare);
    // Half of the share that was found: it was found when it was high, by chance too.
    const bad = Math.min(shareMax, Math.max(worse.share / 2, alikeRatio * good));
    const ratio = isFailed ? good / bad : (1 - good) / (1 - bad);
    worse.relief = Math.max(0, worse.relief + Math.log(ratio));
  }

  advance(nowMs: number): void {
    this.lately.advance(nowMs);
    this.hour.advance(nowMs);
  }

  forget(by: Compared): void {
    this.lately.forget(by);
    this.hour.forget(by);
  }

  #isRepeated(by: Compared, conversation: Conversation, nowMs: number): boolean {
    if (by === 'errors') {
      if (nowMs - this.#failedMs < failuresTogetherMs) return true;
      this.#failedMs = nowMs;
    }
    if (conversation === undefined) return false;
    const failed = this.#failedConversations;
    const beforeMs = failed.get(conversation);
    if (beforeMs !== undefined && nowMs - beforeMs < hourMs) return true;
    failed.delete(conversation);
    failed.set(conversation, nowMs);
    const [oldest] = failed.keys();
    if (failed.size > conversationsMax) failed.delete(oldest!);
    return false;
  }

  #count(cell: number, amount: number): void {
    this.totals[cell]! += amount;
    this.#add(cell, amount);
  }

  #add(cell: number, amount: number): void {
    if (amount === 0) return;
    this.lately.add(cell, amount);
    this.hour.add(cell, amount);
  }
}

export const countsOf = (sums: Float64Array | Uint32Array): Counts =>
  Object.fromEntries(counted.map((name, cell) => [name, sums[cell]!])) as Counts;
