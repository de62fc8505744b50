/**
 * Chooses how to run a step that reads prompts: with how many threads, and how many tokens. A step takes about 50 ms while something waits
 * for it, such as answers that are being written, and 500 ms otherwise. Deep in a prompt that nothing else waits for, that would be too few
 * tokens, so there a step has more and takes up to 4 s (`leastAlone`): an abort and a new request wait for one step. Times are learned from
 * the steps themselves, because the machine's load changes: llama.cpp's threads wait for each other by spinning, so when another process
 * takes one of two cores, a step of two threads takes 250 to 800 ms instead of 5 to 60, and one thread alone is much faster.
 */
export class PromptBatchTuner {
  readonly #tokensMax: number;
  /** All threads, half of them, one: the first is used until something is known. */
  readonly #candidates: readonly Candidate[];
  #best = 0;
  #steps = 0;
  #trials = 0;
  /** Total time of all steps. */
  #readMs = 0;
  #nextTrialMs = 0;
  /** Time per token with the best number of threads after the latest trial. */
  #provenMs = Infinity;

  constructor(threadsMax: number, tokensMax: number) {
    this.#tokensMax = tokensMax;
    const counts = new Set([threadsMax, Math.ceil(threadsMax / 2), 1]);
    this.#candidates = [...counts].map((threads) => ({ threads, tokenMs: undefined, seenStep: 0, fewTokenMs: [] }));
  }

  /** Returns the choice for the next step that reads prompts. */
  next({ waits, depth }: ReadingPlace): PromptBatch {
    const candidate = this.#candidates[this.#chosen()];
    const { threads = 1, tokenMs } = candidate ?? {};
    const fewest = fewestTokens(depth);
    let tokens = waits === 'somebody' ? fewest : tileTokens;
    if (tokenMs === undefined) tokens = fewest;
    else if (!this.#isTrial()) {
      const fitting = (ms: number): number => sizeUpTo(ms / tokenMs);
      const least = waits === 'nobody' && threads > 1 ? leastAlone(depth) : fewest;
      tokens = Math.max(
        fitting(waits === 'somebody' ? stepMs : stepMsAlone),
        Math.min(least, fitting(stepMsMost)),
        fewest,
      );
    }
    return { threads, tokens: Math.min(this.#tokensMax, tokens), expectedMs: (count) => expectedMs(candidate, count) };
  }

  /** Records a step. One of a few tokens only shows how long such steps take. */
  observe({ threads, tokens, depth }: ObservedStep, elapsedMs: number): void {
    const candidate = this.#candidates.find((other) => other.threads === threads);
    if (candidate === undefined) return;
    // At least the clock's resolution, so that the size stays finite.
    const tokenMs = Math.max(elapsedMs, 0.01) / tokens;
    if (tokens < fewTokens) candidate.fewTokenMs = [...candidate.fewTokenMs.slice(1 - fewCounted), tokenMs];
    // The end of a prompt whose beginning was in the cache: such tokens take longer than others.
    if (tokens < fewestTokens(depth)) return;
    const wasTrial = this.#isTrial();
    const known = this.#candidates[this.#best]?.tokenMs;
    // An old measurement says little, so the step replaces it; that of a candidate in regular use is smoothed.
    const before = this.#steps - candidate.seenStep > soonSteps ? undefined : candidate.tokenMs;
    candidate.tokenMs = before === undefined ? tokenMs : before * 0.7 + tokenMs * 0.3;
    candidate.seenStep = ++this.#steps;
    this.#readMs += elapsedMs;
    this.#best = this.#candidates.reduce(
      (least, { tokenMs: cost = Infinity }, index) =>
        cost < (this.#candidates[least]?.tokenMs ?? Infinity) ? index : least,
      0,
    );
    if (!wasTrial) return;
    this.#trials++;
    const best = this.#candidates[this.#best];
    this.#provenMs = best?.tokenMs ?? Infinity;
    const lostMs = Math.max(0, elapsedMs - (known ?? tokenMs) * tokens);
    const hasMore = this.#candidates.some((other) => other.threads > (best?.threads ?? Infinity));
    const pauseMs = Math.max(trialPauseMsLeast, lostMs * trialPauses);
    // At first each of the others is tried in turn; later, occasionally.
    const isFirst = this.#trials < this.#candidates.length - 1;
    this.#nextTrialMs = this.#readMs + (isFirst ? 0 : Math.min(pauseMs, hasMore ? soonMs : lateMs));
  }

  #isTrial(): boolean {
    if (this.#candidates.length === 1 || this.#steps < firstTrial) return false;
    const { tokenMs = 0 } = this.#candidates[this.#best] ?? {};
    return this.#readMs >= this.#nextTrialMs || tokenMs > this.#provenMs * worse;
  }

  #chosen(): number {
    if (!this.#isTrial()) return this.#best;
    const others = this.#candidates.map((_, index) => index).filter((index) => index !== this.#best);
    return others[this.#trials % others.length] ?? this.#best;
  }
}

/** The state of the prompt to be read. */
export interface ReadingPlace {
  /** What waits for the step. `somebody`: an answer or a new request. `prompts`: others that are being read too. */
  readonly waits: 'somebody' | 'prompts' | 'nobody';
  /** Tokens before the step's first one. */
  readonly depth: number;
}

export interface ObservedStep {
  readonly threads: number;
  readonly tokens: number;
  readonly depth: number;
}

export interface PromptBatch {
  readonly threads: number;
  readonly tokens: number;
  /** Expected duration of a step of that many tokens; infinite if unknown. */
  readonly expectedMs: (tokens: number) => number;
}

/**
 * llama.cpp's attention (`ggml_compute_forward_flash_attn_ext_f16` in ggml-cpu/ops.cpp) processes queries in tiles of 64. A smaller step
 * uses a different algorithm, which takes twice as long per token 1,000 tokens into a prompt, and three times as long 3,000 into it.
 */
export const tileTokens = 64;
/** Below this depth, attention is so little of the work that its algorithm does not matter. */
export const shallowTokens = 256;

/** Minimum tokens of a step. The cost per token grows as steps get smaller: steps of 8 read a prompt of 1,000 in 8.2 s instead of 4.1. */
const fewestTokens = (depth: number): number => (depth < shallowTokens ? fewTokens : tileTokens);

/**
 * The step size at which several threads read at 0.9 of the best rate or more. They share a step's rows in four parts each, which split
 * tiles where the model's heads are not a multiple of the parts (9 heads and two threads: 78 % more tiles in steps of 64, 33 % in steps of
 * 128, 11 % in steps of 256), and that matters more the deeper it is in a prompt.
 */
const leastAlone = (depth: number): number => (depth < 512 ? 2 : 4) * tileTokens;

/** Rounds down to one of few sizes, so that llama.cpp can often reuse the graph of the previous step: 32, 48, and whole tiles. */
function sizeUpTo(tokens: number): number {
  const half = 2 ** Math.floor(Math.log2(tokens));
  const size = tokens >= half * 1.5 ? half * 1.5 : half;
  return size < tileTokens ? size : size - (size % tileTokens);
}

interface Candidate {
  readonly threads: number;
  tokenMs: number | undefined;
  /** The number of its latest step. */
  seenStep: number;
  /** Time per token in the latest steps of fewer tokens than `fewTokens`, in which each takes longer. */
  fewTokenMs: readonly number[];
}

function expectedMs(candidate: Candidate | undefined, tokens: number): number {
  const { tokenMs = Infinity, fewTokenMs = [] } = candidate ?? {};
  if (tokens >= fewTokens) return tokens * tokenMs;
  // The minimum: a step on another thread may have had both of its threads on one core.
  return Math.min(tokens * Math.min(...fewTokenMs), fewTokens * tokenMs);
}

const stepMs = 50;
const stepMsAlone = 500;
const stepMsMost = 4000;
const fewTokens = 32;
const fewCounted = 3;
const firstTrial = 2;
const soonSteps = 4;
/**
 * Reading time between two trials: twenty times what the last one lost, so that trials take a twentieth of the time. With fewer threads
 * than possible it is at most eight seconds, so that a core that becomes free is used soon. (With pauses that doubled after each
 * unsuccessful trial, one thread read a prompt alone for a minute after an hour of load.)
 */
const trialPauses = 20;
const trialPauseMsLeast = 1000;
const soonMs = 8000;
const lateMs = 60_000;
/** A token takes this many times as long as after the last trial: it is deeper in a prompt, or another process has started. */
const worse = 1.5;
