import { ApiError } from '../../../platform/errors.ts';
import type { EngineRequest, Prompt, TokenControls } from '../../../generation/request.ts';
import type { CompletionNames, Flavor } from './flavors/flavor.ts';

/** Returns the error for a text completion that the server cannot serve in full; `undefined` if it can. Never throws. */
export function completionRefusal(
  request: EngineRequest,
  { completions: names, continuesTexts }: Flavor,
  reasons: boolean,
): ApiError | undefined {
  const { prompt, tokens, constraint, task } = request;
  if (prompt.type === 'messages') return undefined;
  if (!continuesTexts && task === undefined) {
    return new ApiError('unsupported_feature', 'The model accepts only messages and cannot continue a text.', {
      param: 'prompt',
    });
  }
  if (constraint !== undefined && (names.constrains === 'never' || (reasons && names.constrains !== 'always'))) {
    return new ApiError(
      constraint.source.type === 'regex' ? 'unsupported_regex' : 'unsupported_response_format',
      'The model cannot enforce a format on the continuation of a text.',
      { param: constraint.source.type === 'regex' ? 'regex' : 'response_format' },
    );
  }
  // A form decides where its text ends, and these options prevent that.
  if (constraint !== undefined && tokens !== undefined && (tokens.ignoresEnd || tokens.tokensMin > 0)) {
    const param = tokens.ignoresEnd ? 'ignore_eos' : 'min_tokens';
    return new ApiError('unsupported_parameter', `'${param}' cannot be combined with a format of the answer.`, {
      param,
    });
  }
  const param = tokens === undefined ? undefined : unsupported(request, tokens, names);
  return param === undefined
    ? undefined
    : new ApiError('unsupported_parameter', `The model does not support '${param}' as it is used here.`, { param });
}

function unsupported(
  { prompt, logprobs, maxTokens }: EngineRequest,
  tokens: TokenControls,
  names: CompletionNames,
): string | undefined {
  if (!names.echo) {
    if (maxTokens === 0) return 'max_tokens';
    if (tokens.echo && (prompt.type === 'token-ids' || logprobs !== undefined)) return 'echo';
  }
  // The texts of the tokens are needed to separate the prompt from the answer, and would be missing.
  const isNamed = tokens.namesIds && logprobs !== undefined;
  if (isNamed && tokens.echo && names.namesIds !== 'always') return 'return_tokens_as_token_ids';
  const needed: readonly (readonly [isNeeded: boolean, name: string | undefined, param: string])[] = [
    [tokens.returnsIds, names.returnsIds, 'return_token_ids'],
    [isNamed, names.namesIds, 'return_tokens_as_token_ids'],
    [tokens.stopIds.length > 0, names.stopIds, 'stop_token_ids'],
    [tokens.ignoresEnd, names.ignoresEnd, 'ignore_eos'],
    [tokens.tokensMin > 0, names.tokensMin, 'min_tokens'],
    [!tokens.skipsSpecial, names.skipsSpecial, 'skip_special_tokens'],
    [tokens.includesStop, names.includesStop, 'include_stop_str_in_output'],
    [!tokens.addsSpecial && prompt.type === 'texts', names.addsSpecial, 'add_special_tokens'],
  ];
  return needed.find(([isNeeded, name]) => isNeeded && name === undefined)?.[2];
}

/** Returns whether the server is asked to put the prompt before the answer, because only it knows the requested details. */
export const asksForEcho = ({ prompt, tokens, logprobs, maxTokens }: EngineRequest): boolean =>
  tokens?.echo === true && (prompt.type === 'token-ids' || logprobs !== undefined || maxTokens === 0);

/** Returns the client's fields beyond OpenAI's, under the server's names. */
export function completionFields(request: EngineRequest, { completions: names, topLogprobsMin }: Flavor) {
  const { tokens, logprobs } = request;
  const fields: Record<string, unknown> = {};
  const isEchoed = asksForEcho(request);
  // With an echo, tokens separate the prompt from the answer's first text; SGLang returns none for 0.
  if (isEchoed) fields['logprobs'] = Math.max(logprobs ?? 0, 1);
  else if (logprobs !== undefined) fields['logprobs'] = Math.max(logprobs, topLogprobsMin);
  if (tokens === undefined) return fields;
  const put = (name: string | undefined, isAsked: boolean, value: unknown): void => {
    if (name !== undefined && isAsked) fields[name] = value;
  };
  put('echo', isEchoed, true);
  put(names.returnsIds, tokens.returnsIds, true);
  put(names.namesIds === 'always' ? undefined : names.namesIds, tokens.namesIds && logprobs !== undefined, true);
  put(names.stopIds, tokens.stopIds.length > 0, tokens.stopIds);
  put(names.ignoresEnd, tokens.ignoresEnd, true);
  put(names.tokensMin, tokens.tokensMin > 0, tokens.tokensMin);
  put(names.skipsSpecial, !tokens.skipsSpecial, false);
  put(names.includesStop, tokens.includesStop, true);
  put(names.addsSpecial, !tokens.addsSpecial, false);
  return fields;
}

/**
 * Returns the path of the token to blame when a server rejects one as outside its vocabulary: the largest id always is. `field` is the
 * client's name for the prompts.
 */
export function largestIdAt(prompt: Prompt, field = 'prompt'): string {
  if (prompt.type !== 'token-ids') return field;
  let found = { prompt: 0, index: 0, id: -1 };
  for (const [index, ids] of prompt.prompts.entries())
    for (const [at, id] of ids.entries()) if (id > found.id) found = { prompt: index, index: at, id };
  return prompt.prompts.length === 1 ? `${field}[${found.index}]` : `${field}[${found.prompt}][${found.index}]`;
}
