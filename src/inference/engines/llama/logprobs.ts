import type { AddonContext, AddonSampler } from './addon.ts';
import type { Logprobs, TokenLogprobs } from './llama-model.ts';

/**
 * Computes probabilities with this version of the addon: a sampler can report the chosen token's share of the tokens that its filters
 * leave, and list those tokens, which is cheap after a small top_k. So the likeliest token's share is computed over the whole vocabulary,
 * and the others from their ratio to it. The share costs a sort of the vocabulary (3 ms a token at 49,000 tokens, 11 at 150,000, on the
 * thread pool), the rest 0.2 ms. Newer versions report the sum itself (`includeSelected`); adopting that only changes this class.
 */
export class LogprobsHandle implements Logprobs {
  readonly #top: number;
  readonly #whole: AddonSampler;
  readonly #best: AddonSampler;
  readonly #one: AddonSampler;

  constructor(top: number, create: () => AddonSampler) {
    this.#top = top;
    this.#whole = create();
    this.#whole.applyConfig({ temperature: 0, seed: 1 });
    this.#best = create();
    this.#best.applyConfig({ temperature: 1, topK: Math.max(1, top), seed: 1 });
    this.#one = create();
  }

  /** Makes the first access to the logits of a batch alone (see `sample`). */
  async settle(context: AddonContext, logits: number): Promise<void> {
    await context.sampleToken(logits, this.#best);
  }

  async of(context: AddonContext, logits: number, id: number): Promise<TokenLogprobs> {
    const [[, , share], [, listed]] = await Promise.all([
      context.sampleToken(logits, this.#whole, false, true),
      context.sampleToken(logits, this.#best, true, false),
    ]);
    const [first] = ratiosOf(listed);
    if (share === undefined || first === undefined) throw new Error('the addon reports no probabilities');
    const best = Math.log(share);
    const top = ratiosOf(listed).map(({ id, ratio }) => ({
      id,
      logprob: Math.min(0, best + Math.log(ratio / first.ratio)),
    }));
    const logprob = top.find((token) => token.id === id)?.logprob ?? (await this.#below(context, logits, id, best));
    return { logprob, top: top.slice(0, this.#top) };
  }

  /** Returns the logprob of a token outside the likeliest: a bias lifts it until it stands beside the best one. */
  async #below(context: AddonContext, logits: number, id: number, best: number): Promise<number> {
    for (const lift of [40, 80]) {
      this.#one.applyConfig({
        temperature: 1,
        topK: 2,
        seed: 1,
        tokenBiasKeys: Uint32Array.of(id),
        tokenBiasValues: Float32Array.of(lift),
      });
      const [, listed] = await context.sampleToken(logits, this.#one, true, false);
      const ratios = ratiosOf(listed);
      const own = ratios.find((token) => token.id === id);
      const other = ratios.find((token) => token.id !== id);
      if (own !== undefined && other !== undefined && own.ratio > 0 && other.ratio > 0)
        return Math.min(0, best + Math.log(own.ratio / other.ratio) - lift);
    }
    return -Infinity;
  }

  dispose(): void {
    for (const sampler of [this.#whole, this.#best, this.#one]) sampler.dispose();
  }
}

export function logprobsHandleOf(logprobs: Logprobs): LogprobsHandle {
  if (!(logprobs instanceof LogprobsHandle)) throw new Error('the logprobs belong to another model');
  return logprobs;
}

/** Returns ratios from the addon's list, which alternates ids and probabilities, the likeliest first. */
function ratiosOf(listed: readonly number[] | undefined): readonly { readonly id: number; readonly ratio: number }[] {
  const ratios: { readonly id: number; readonly ratio: number }[] = [];
  for (let index = 0; listed !== undefined && index + 1 < listed.length; index += 2)
    ratios.push({ id: listed[index] ?? -1, ratio: listed[index + 1] ?? 0 });
  return ratios;
}
