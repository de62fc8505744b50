import type { Model } from '../../catalog/model.ts';
import { ApiError } from '../../platform/errors.ts';
import { continuesLast } from '../../generation/request.ts';
import type { GenerationRequest } from '../../generation/request.ts';
import type { FamilyFlags } from './route.ts';

/**
 * A request is accepted exactly when the model's card allows it (contracts decision 20). Called after the tool rules, before
 * lengths (decision 10).
 */
export function checkFeatures(request: GenerationRequest, model: Model, flags: FamilyFlags): void {
  const { at } = request;
  const lacks = (param: string, what: string): ApiError =>
    new ApiError('unsupported_feature', `The model '${model.id}' does not support ${what}.`, { param });

  if (!flags.supported) throw lacks('model', 'this endpoint');
  if (request.task?.type === 'embed' && request.task.dimensions !== undefined && flags.dimensions !== true)
    throw unsupportedParameter(model, 'dimensions');
  if (request.stream && !flags.streaming) throw lacks('stream', 'streaming');
  if (request.tools.length > 0) {
    if (!flags.tools) throw lacks('tools', 'tools');
    if (request.stream && !flags.toolStreaming) throw lacks('tools', 'streaming tool calls');
    if (isFormat(request) && !flags.toolsWithResponseFormat)
      throw lacks(at.constraint, `tools and ${at.constraint} together`);
  }
  // §4.2.2(5): such a model would have to answer without reasoning first.
  const forced = request.toolChoice?.type === 'required' || request.toolChoice?.type === 'function';
  if (forced && reasonsAlways(model)) throw lacks(at.toolChoice, 'a forced tool choice, because it always reasons');
  if (continuesLast(request.prompt)) {
    // Reasoning, a call, or the beginning of a form would come first, so the answer would not continue the words.
    if (reasonsAlways(model)) throw lacks(at.prompt, 'the continuation of a message, because it always reasons');
    if (forced) throw lacks(at.toolChoice, 'a forced tool choice with the continuation of a message');
    if (request.constraint !== undefined)
      throw lacks(at.constraint, `${at.constraint} with the continuation of a message`);
  }
  checkConstraint(request, model, flags);
  if (request.choices > 1 && !flags.n) throw lacks('n', 'n > 1');
  if (request.logprobs !== undefined && !flags.logprobs) throw unsupportedParameter(model, at.logprobs ?? 'logprobs');
  if (request.logitBias !== undefined && !flags.logitBias) throw unsupportedParameter(model, 'logit_bias');
}

/** A model whose card does not list the effort `none` cannot be kept from reasoning. */
const reasonsAlways = ({ capabilities }: Model): boolean =>
  capabilities.reasoning && !capabilities.efforts.includes('none');

const isFormat = (request: GenerationRequest): boolean =>
  request.constraint !== undefined && request.constraint.type !== 'regex';

function checkConstraint({ constraint, at }: GenerationRequest, model: Model, flags: FamilyFlags): void {
  const refused = (type: string): ApiError =>
    new ApiError(
      'unsupported_response_format',
      `The model '${model.id}' does not support ${at.constraint} '${type}'.`,
      {
        param: at.constraintType,
      },
    );
  switch (constraint?.type) {
    case undefined:
      return;
    case 'json-object':
      if (!flags.jsonObject) throw refused('json_object');
      return;
    case 'json-schema':
      if (!flags.jsonSchema) throw refused('json_schema');
      return;
    case 'grammar':
      if (!flags.grammar) throw refused('grammar');
      return;
    case 'regex':
      if (!flags.regex)
        throw new ApiError('unsupported_regex', `The model '${model.id}' does not support regex.`, {
          param: at.constraintType,
        });
      return;
  }
}

const unsupportedParameter = (model: Model, param: string): ApiError =>
  new ApiError('unsupported_parameter', `The model '${model.id}' does not support '${param}'.`, { param });
