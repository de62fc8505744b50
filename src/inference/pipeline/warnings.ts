import type { Model } from '../../catalog/model.ts';
import type { Effort, GenerationRequest, Prompt } from '../../generation/request.ts';
import type { Headers } from '../dialects/dialect.ts';
import type { Warning } from '../../platform/warnings.ts';

/** `undefined`: nothing was left out, as for most requests; these make no list. */
export type Warnings = readonly Warning[] | undefined;

export const withWarning = (warnings: Warnings, warning: Warning): Warnings =>
  warnings === undefined ? [warning] : warnings.includes(warning) ? warnings : [...warnings, warning];

/** What a model's card leaves out of a request, other than images. `effort`: the one that it runs at. */
export function warningsOf(
  { sampling, choices, effort: asked }: Pick<GenerationRequest, 'sampling' | 'choices' | 'effort'>,
  model: Pick<Model, 'sampling' | 'dedicatedTo'>,
  effort: Effort,
  headers: Headers,
): Warnings {
  let warnings: Warnings;
  if (model.sampling !== 'honor') {
    const { temperature, topP, presencePenalty, frequencyPenalty } = sampling;
    if ((temperature ?? topP ?? presencePenalty ?? frequencyPenalty) !== undefined)
      warnings = withWarning(warnings, 'sampling_ignored');
    if (model.sampling === 'fixed' && choices > 1) warnings = withWarning(warnings, 'n_ignored');
  }
  if (asked !== undefined && !isAt(asked, effort)) warnings = withWarning(warnings, 'effort_changed');
  if (model.dedicatedTo === undefined && headers['service-request-tag'] !== undefined)
    warnings = withWarning(warnings, 'tags_ignored');
  return warnings;
}

const isAt = (asked: NonNullable<GenerationRequest['effort']>, effort: Effort): boolean =>
  asked.type === 'switch' ? asked.on === (effort !== 'none') : asked.value === effort;

/** With the warning that images were removed, if parts of `before` are missing in `after`: nothing else is ever removed. */
export const withImagesRemoved = (warnings: Warnings, before: Prompt, after: Prompt): Warnings =>
  before !== after && partsOf(after) < partsOf(before) ? withWarning(warnings, 'images_removed') : warnings;

const partsOf = (prompt: Prompt): number =>
  prompt.type === 'messages' ? prompt.messages.reduce((sum, { content }) => sum + content.length, 0) : 0;
