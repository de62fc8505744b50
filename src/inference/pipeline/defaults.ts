import type { Model } from '../../catalog/model.ts';
import type { ModelDefaults } from '../../catalog/model-defaults.ts';
import type { GenerationRequest, Prompt, Sampling } from '../../generation/request.ts';
import { withSamplingDefaults } from '../../generation/sampling-defaults.ts';

/**
 * Specification part 1: models that do not honor the four fields never receive them and use their own defaults; the other fields reach
 * every model. Fields that a request omits get the model's defaults, sent to its backend like a client's values.
 */
export function samplingFor({ sampling: kind, defaults }: Model, sent: Sampling): Sampling {
  return withSamplingDefaults(kind === 'honor' ? sent : withoutTheFour(sent), defaults.sampling);
}

const withoutTheFour = (sampling: Sampling): Sampling => ({
  ...sampling,
  temperature: undefined,
  topP: undefined,
  presencePenalty: undefined,
  frequencyPenalty: undefined,
});

/** The conversation with the model's system text in front, unless the client sent one, even an empty one. */
export function withDefaultSystem(
  prompt: Prompt,
  { sendsSystem }: Pick<GenerationRequest, 'sendsSystem'>,
  { system }: ModelDefaults,
): Prompt {
  if (system === undefined || prompt.type !== 'messages' || sendsSystem === true) return prompt;
  if (prompt.messages.some(({ role }) => role === 'system')) return prompt;
  return {
    type: 'messages',
    messages: [{ role: 'system', content: [{ type: 'text', text: system }] }, ...prompt.messages],
  };
}
