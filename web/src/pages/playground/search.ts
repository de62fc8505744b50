/** What a link to the playground carries: models, the API family, parameters. Never a key, and nothing that was written. */
import { flag, oneOf, text } from '../../app/filters.ts';
import type { Read, SearchOf } from '../../app/filters.ts';

export const familyNames = ['chat', 'responses', 'messages', 'completions'] as const;
export type FamilyName = (typeof familyNames)[number];

const decimal: Read<number> = (written) => {
  const value = text(written) === undefined ? Number.NaN : Number(written);
  return Number.isFinite(value) ? value : undefined;
};

export const playgroundSearch = {
  model: text,
  model2: text,
  model3: text,
  family: oneOf(familyNames),
  format: oneOf(['json_object', 'json_schema']),
  tool_choice: oneOf(['none', 'required']),
  /** The answer comes at once instead of as a stream. */
  whole: flag,
  zdr: flag,
  effort: text,
  /** One a line. */
  stop: text,
  max_tokens: decimal,
  temperature: decimal,
  top_p: decimal,
  top_k: decimal,
  min_p: decimal,
  frequency_penalty: decimal,
  presence_penalty: decimal,
  repetition_penalty: decimal,
  seed: decimal,
};
export type Search = SearchOf<typeof playgroundSearch>;
