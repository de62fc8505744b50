import { ApiError } from '../../../platform/errors.ts';
import type { Constraint, EngineRequest, Prompt } from '../../../generation/request.ts';

/** Checks again what earlier checks should have refused, so that no malformed request reaches the child. */
export function refuseUnfit(request: EngineRequest): void {
  const unfit = (param: string, message: string) => new ApiError('unsupported_value', message, { param });
  const { constraint, sampling, stop, logprobs, logitBias, maxTokens } = request;
  if (constraint !== undefined && constraint.gbnf === undefined) {
    throw new ApiError('unsupported_feature', 'This model does not support `response_format`.', {
      param: constraintParam(constraint.source),
    });
  }
  const jobs = jobsOf(request);
  if (promptCount(request.prompt) > taskPromptsMax)
    throw unfit(request.task?.field ?? 'prompt', `At most ${taskPromptsMax} inputs are allowed.`);
  if (promptCount(request.prompt) === 0) throw unfit('prompt', 'The prompt is missing.');
  if (!(jobs >= 1 && jobs <= jobsMax)) throw unfit('n', `A request may have at most ${jobsMax} answers.`);
  if (!Number.isFinite(maxTokens)) throw unfit('max_tokens', '`max_tokens` must be a number.');
  for (const [name, value] of Object.entries(sampling))
    if (value !== undefined && !Number.isFinite(value)) throw unfit(name, `\`${name}\` must be a number.`);
  if (logprobs !== undefined && !(Number.isInteger(logprobs) && logprobs >= 0 && logprobs <= logprobsMax))
    throw unfit('top_logprobs', `\`top_logprobs\` must be between 0 and ${logprobsMax}.`);
  if (stop.length > stopsMax || stop.some((sequence) => sequence.length > stopLengthMax))
    throw unfit('stop', `At most ${stopsMax} stop sequences of ${stopLengthMax} characters each are allowed.`);
  if (Object.keys(logitBias ?? {}).length > biasesMax)
    throw unfit('logit_bias', `\`logit_bias\` may have at most ${biasesMax} tokens.`);
}

export function constraintParam(source: Constraint): string {
  return source.type === 'regex' ? 'regex' : 'response_format';
}

const logprobsMax = 20;
const stopsMax = 16;
const stopLengthMax = 4096;
/** Twice the largest existing vocabulary. */
const biasesMax = 524_288;

/** Returns the number of jobs. A task's inputs share the contexts, one input at a time, so they count as one job. */
export const jobsOf = ({ prompt, task, choices }: EngineRequest): number =>
  task === undefined ? promptCount(prompt) * choices : 1;

function promptCount(prompt: Prompt): number {
  return prompt.type === 'messages' ? 1 : prompt.prompts.length;
}

/** Maximum answers of one request; a larger request must be split. */
const jobsMax = 128;
/** Maximum inputs of one task. */
const taskPromptsMax = 2048;
