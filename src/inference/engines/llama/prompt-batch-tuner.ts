/**
 * Chooses how to make a step that reads prompts: with how many threads, and how many tokens, so that it takes about 50 ms while
 * others wait for it, such as answers that are being written, and 500 ms otherwise: an abort and a new request wait for one step at
 * most, and a new one's prompt would be read after this one anyway. Both are learned from the steps themselves, because a machine changes under us: llama.cpp's threads wait for each other by
 * spinning, so when another process takes one of two cores, a step of two threads takes 250 to 800 ms instead of 5 to 60, and one
 * thread alone is much the faster.
 *
 * Measured with SmolLM2-135M (Q4_1) on two free cores: 16 tokens take 20–47 ms, 128 take 110–340; small chunks cost 10–15 %, and four
 * prompts of 1,000 tokens take 6.8 s in steps of 128 that end one prompt and begin the next, 5.9 in steps of 512.
 * Steps never have fewer than 32 tokens, also where those take longer than 50 ms: what a token costs grows as steps get
 * smaller, and where the machine is slow, 8 tokens a step read a prompt of 1,000 in 8.2 s instead of 4.1 (llama-server 3.3).
 */
export class PromptBatchTuner {
  readonly #tokensMax: number;
  /** All threads, half of them, one: the first is used until something is known. */
  readonly #candidates: readonly Candidate[];
  #best = 0;
  #steps = 0;
  #nextTrial = firstTrial;
  #trialEvery = trialEveryFirst;
  #trials = 0;

  constructor(threadsMax: number, tokensMax: number) {
    this.#tokensMax = tokensMax;
    const counts = new Set([threadsMax, Math.ceil(threadsMax / 2), 1]);
    this.#candidates = [...counts].map((threads) => ({ threads, tokenMs: undefined, fewTokenMs: [] }));
  }

  /** The choice for the next step that reads prompts. */
  next(othersWait: boolean): PromptBatch {
    const candidate = this.#candidates[this.#chosen()];
    const tokenMs = candidate?.tokenMs;
    const fitting = tokenMs === undefined ? firstTokens : sizeUpTo((othersWait ? stepMs : stepMsAlone) / tokenMs);
    const tokens = Math.min(this.#tokensMax, Math.max(leastTokens, fitting));
    return { threads: candidate?.threads ?? 1, tokens, expectedMs: (count) => expectedMs(candidate, count) };
  }

  /** Records a step. One of a few tokens only tells how long such steps take. */
  observe(threads: number, tokens: number, elapsedMs: number): void {
    const candidate = this.#candidates.find((other) => other.threads === threads);
    if (candidate === undefined) return;
    // No finer than the clock, so that the size stays finite.
    const tokenMs = Math.max(elapsedMs, 0.01) / tokens;
    if (tokens < leastTokens) {
      candidate.fewTokenMs = [...candidate.fewTokenMs.slice(1 - fewCounted), tokenMs];
      return;
    }
    const wasTrial = this.#isTrial();
    // Trials are rare, so each counts fully; the candidate in regular use is smoothed.
    candidate.tokenMs = wasTrial || candidate.tokenMs === undefined ? tokenMs : candidate.tokenMs * 0.7 + tokenMs * 0.3;
    this.#steps++;
    const best = this.#candidates.reduce(
      (least, { tokenMs: cost = Infinity }, index) =>
        cost < (this.#candidates[least]?.tokenMs ?? Infinity) ? index : least,
      0,
    );
    if (best !== this.#best) this.#trialEvery = trialEveryFirst;
    else if (wasTrial) this.#trialEvery = Math.min(this.#trialEvery * 2, trialEveryMost);
    this.#best = best;
    if (wasTrial) {
      this.#trials++;
      // At first each of the others is tried in turn; later now and then.
      this.#nextTrial = this.#steps + (this.#trials < this.#candidates.length - 1 ? 0 : this.#trialEvery);
    }
  }

  #isTrial(): boolean {
    return this.#candidates.length > 1 && this.#steps >= this.#nextTrial;
  }

  #chosen(): number {
    if (!this.#isTrial()) return this.#best;
    const others = this.#candidates.map((_, index) => index).filter((index) => index !== this.#best);
    return others[this.#trials % others.length] ?? this.#best;
  }
}

/** One of few sizes, so that llama.cpp often computes with the graph of the step before: 64, 96, 128, 192, 256, 384, 512. */
function sizeUpTo(tokens: number): number {
  const half = 2 ** Math.floor(Math.log2(tokens));
  return tokens >= half * 1.5 ? half * 1.5 : half;
}

export interface PromptBatch {
  readonly threads: number;
  readonly tokens: number;
  /** How long a step of that many tokens takes; infinite where nothing is known. */
  readonly expectedMs: (tokens: number) => number;
}

interface Candidate {
  readonly threads: number;
  tokenMs: number | undefined;
  /** The same in the latest steps of fewer tokens than `leastTokens`, in which each takes longer. */
  fewTokenMs: readonly number[];
}

function expectedMs(candidate: Candidate | undefined, tokens: number): number {
  const { tokenMs = Infinity, fewTokenMs = [] } = candidate ?? {};
  if (tokens >= leastTokens) return tokens * tokenMs;
  // The least of them: one that another thread made may have had both of its threads on one core.
  return Math.min(tokens * Math.min(...fewTokenMs), leastTokens * tokenMs);
}

const stepMs = 50;
const stepMsAlone = 500;
const firstTokens = 32;
const leastTokens = 32;
const fewCounted = 3;
const firstTrial = 2;
const trialEveryFirst = 16;
const trialEveryMost = 256;
