import type { GenerationBatch, Usage } from '../../src/generation/event.ts';

/** Batches that were written by hand, each with the usage up to there, as engines give them: a token for each delta that has no list of them. */
export function covered(batches: readonly GenerationBatch[]): readonly GenerationBatch[] {
  let prompt: number | undefined;
  let usage: Omit<Usage, 'promptTokens'> = { cachedTokens: 0, completionTokens: 0, reasoningTokens: 0 };
  return batches.map((batch) => {
    let isCovered = true;
    for (const event of batch) {
      if (event.type === 'start') {
        prompt = event.promptTokens;
        usage = { ...usage, cachedTokens: event.cachedTokens ?? 0 };
      } else if (event.type === 'usage') {
        const { promptTokens, ...rest } = event.usage;
        [prompt, usage, isCovered] = [promptTokens ?? prompt, rest, true];
      } else if (event.type === 'text' || event.type === 'reasoning' || event.type.startsWith('tool-')) {
        const tokens = event.type === 'text' ? (event.tokenIds?.length ?? event.logprobs?.length ?? 1) : 1;
        const reasoningTokens = usage.reasoningTokens + (event.type === 'reasoning' ? tokens : 0);
        usage = { ...usage, completionTokens: usage.completionTokens + tokens, reasoningTokens };
        isCovered = false;
      }
    }
    if (isCovered) return batch;
    return [...batch, { type: 'usage', usage: { promptTokens: prompt, ...usage }, counted: true }];
  });
}
