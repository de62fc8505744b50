import type { Model } from '../catalog/model.ts';
import { ApiError } from '../errors.ts';
import type { GenerationRequest } from '../generation/request.ts';

/**
 * A request is accepted exactly when the model's card says so (contracts decision 20). Called after the tool rules,
 * before lengths (decision 10).
 */
export function checkFeatures(request: GenerationRequest, model: Model): void {
  const { chat } = model.capabilities;
  const lacks = (param: string, what: string): ApiError =>
    new ApiError('unsupported_feature', `The model '${model.id}' does not support ${what}.`, { param });

  if (!chat.supported) throw lacks('model', 'this endpoint');
  if (request.stream && !chat.streaming) throw lacks('stream', 'streaming');
  if (request.tools.length > 0) {
    if (!chat.tools) throw lacks('tools', 'tools');
    if (request.stream && !chat.toolStreaming) throw lacks('tools', 'streaming tool calls');
    if (isFormat(request) && !chat.toolsWithResponseFormat)
      throw lacks('response_format', 'tools and response_format together');
  }
  // §4.2.2(5): such a model would have to answer without thinking first.
  const forced = request.toolChoice?.type === 'required' || request.toolChoice?.type === 'function';
  if (forced && reasonsAlways(model)) throw lacks('tool_choice', 'a forced tool choice, because it always reasons');
  checkConstraint(request, model);
  if (request.choices > 1 && !chat.n) throw lacks('n', 'n > 1');
  if (request.logprobs !== undefined && !chat.logprobs) throw unsupportedParameter(model, 'logprobs');
  if (request.logitBias !== undefined && !chat.logitBias) throw unsupportedParameter(model, 'logit_bias');
}

/** A model whose card lists no effort `none` cannot be kept from reasoning. */
const reasonsAlways = ({ capabilities }: Model): boolean =>
  capabilities.reasoning && !capabilities.efforts.includes('none');

const isFormat = (request: GenerationRequest): boolean =>
  request.constraint !== undefined && request.constraint.type !== 'regex';

function checkConstraint(request: GenerationRequest, model: Model): void {
  const { chat } = model.capabilities;
  const refused = (type: string): ApiError =>
    new ApiError('unsupported_response_format', `The model '${model.id}' does not support response_format '${type}'.`, {
      param: 'response_format.type',
    });
  switch (request.constraint?.type) {
    case undefined:
      return;
    case 'json-object':
      if (!chat.jsonObject) throw refused('json_object');
      return;
    case 'json-schema':
      if (!chat.jsonSchema) throw refused('json_schema');
      return;
    case 'grammar':
      if (!chat.grammar) throw refused('grammar');
      return;
    case 'regex':
      if (!chat.regex)
        throw new ApiError('unsupported_regex', `The model '${model.id}' does not support regex.`, { param: 'regex' });
      return;
  }
}

const unsupportedParameter = (model: Model, param: string): ApiError =>
  new ApiError('unsupported_parameter', `The model '${model.id}' does not support '${param}'.`, { param });
