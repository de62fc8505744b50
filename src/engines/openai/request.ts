import { createHash } from 'node:crypto';
import { ApiError } from '../../errors.ts';
import type { EngineRequest, Message, Part, Tool } from '../../generation/request.ts';
import type { Flavor } from './flavors.ts';

export interface UpstreamRequest {
  /** Below the base URL. */
  readonly path: '/chat/completions' | '/completions';
  readonly body: Readonly<Record<string, unknown>>;
}

/**
 * The request in the words of the backend. Every field is built here from the internal language, so nothing that a
 * client invents can reach a backend and ask for work that the meter does not see.
 */
export function upstreamRequest(
  request: EngineRequest,
  flavor: Flavor,
  model: string,
  mayCachePrompt: boolean,
): UpstreamRequest {
  const common = { model, ...samplingFields(request, flavor), ...cacheFields(request, flavor, mayCachePrompt) };
  const { prompt } = request;
  switch (prompt.type) {
    case 'messages':
      return {
        path: '/chat/completions',
        body: { ...common, ...chatFields(request, prompt.messages, flavor), stream: true, ...flavor.always },
      };
    case 'token-ids':
    case 'texts': {
      if (!flavor.hasCompletions) {
        throw new ApiError('unsupported_feature', 'The model takes messages only, no ready prompts.', {
          param: 'prompt',
        });
      }
      const { prompts } = prompt;
      return {
        path: '/completions',
        body: {
          ...common,
          prompt: prompts.length === 1 ? prompts[0] : prompts,
          ...(request.logprobs === undefined ? {} : { logprobs: request.logprobs }),
          ...constraintFields(request, flavor),
          stream: true,
          ...flavor.always,
        },
      };
    }
  }
}

/** Messages as the backend's template reads them; also what its token counter is asked with. */
export function chatMessages(
  messages: readonly Message[],
  flavor: Flavor,
  preserveThinking: boolean,
): readonly Readonly<Record<string, unknown>>[] {
  return messages.map((message) => {
    switch (message.role) {
      case 'system':
      case 'user':
        return { role: message.role, content: contentOf(message.content) };
      case 'tool':
        return { role: 'tool', tool_call_id: message.toolCallId ?? '', content: contentOf(message.content) };
      case 'assistant': {
        const reasoning = message.reasoning.map((part) => part.text).join('\n');
        const hasReasoning = preserveThinking && reasoning !== '' && flavor.reasoningField !== undefined;
        const calls = message.toolCalls;
        return {
          role: 'assistant',
          content: message.content.length === 0 && calls.length > 0 ? null : contentOf(message.content),
          ...(hasReasoning ? { [flavor.reasoningField]: reasoning } : {}),
          ...(calls.length === 0
            ? {}
            : {
                tool_calls: calls.map((call) => ({
                  id: call.id,
                  type: 'function',
                  function: { name: call.name, arguments: call.arguments },
                })),
              }),
        };
      }
    }
  });
}

/** Tools and the choice among them. */
export function toolFields(request: EngineRequest, flavor: Flavor): Readonly<Record<string, unknown>> {
  if (request.tools.length === 0) return {};
  const { toolChoice } = request;
  const parallel = request.parallelToolCalls ? {} : { parallel_tool_calls: false };
  if (toolChoice.type !== 'function') {
    return { tools: request.tools.map(toolOf), tool_choice: toolChoice.type, ...parallel };
  }
  if (flavor.namedToolChoice === 'as-only-tool') {
    const only = request.tools.filter((tool) => tool.name === toolChoice.name);
    return { tools: only.map(toolOf), tool_choice: 'required', ...parallel };
  }
  return {
    tools: request.tools.map(toolOf),
    tool_choice: { type: 'function', function: { name: toolChoice.name } },
    ...parallel,
  };
}

function chatFields(
  request: EngineRequest,
  messages: readonly Message[],
  flavor: Flavor,
): Readonly<Record<string, unknown>> {
  return {
    messages: chatMessages(messages, flavor, request.preserveThinking),
    ...toolFields(request, flavor),
    ...constraintFields(request, flavor),
    ...flavor.effort(request.effort),
    ...(request.logprobs === undefined ? {} : { logprobs: true, top_logprobs: request.logprobs }),
  };
}

function samplingFields(request: EngineRequest, flavor: Flavor): Readonly<Record<string, unknown>> {
  const { sampling } = request;
  const fields: Record<string, unknown> = { max_tokens: request.maxTokens };
  const put = (name: string | undefined, value: unknown): void => {
    if (name !== undefined && value !== undefined) fields[name] = value;
  };
  put('temperature', sampling.temperature);
  put('top_p', sampling.topP);
  put(flavor.topK, sampling.topK);
  put(flavor.minP, sampling.minP);
  put('presence_penalty', sampling.presencePenalty);
  put('frequency_penalty', sampling.frequencyPenalty);
  put(flavor.repetitionPenalty, sampling.repetitionPenalty);
  put('seed', sampling.seed === undefined ? undefined : Math.abs(sampling.seed) % flavor.seedModulus);
  if (request.stop.length > 0) fields['stop'] = request.stop;
  if (request.choices > 1) fields['n'] = request.choices;
  put('logit_bias', request.logitBias);
  return fields;
}

function constraintFields(request: EngineRequest, flavor: Flavor): Readonly<Record<string, unknown>> {
  const { constraint } = request;
  if (constraint === undefined) return {};
  const fields = flavor.constraint(constraint);
  if (fields !== undefined) return fields;
  if (constraint.type === 'regex') {
    throw new ApiError('unsupported_regex', 'The model cannot keep an answer to a regular expression.', {
      param: 'regex',
    });
  }
  throw new ApiError('unsupported_response_format', 'The model cannot keep an answer to a grammar.', {
    param: 'response_format',
  });
}

/** Cached prompts are shared inside a scope only, and never under zero data retention (reliability §3.5, §4). */
function cacheFields(
  request: EngineRequest,
  flavor: Flavor,
  mayCachePrompt: boolean,
): Readonly<Record<string, unknown>> {
  switch (flavor.cacheIsolation) {
    case 'salt': {
      // A salt of its own makes what the server keeps of this request unreachable.
      const scope = request.retain ? request.cacheScope : `${request.cacheScope} ${request.id}`;
      return { cache_salt: createHash('sha256').update(scope).digest('base64url') };
    }
    case 'switch':
      return { cache_prompt: mayCachePrompt };
    case 'none':
      return {};
  }
}

/** A plain string wherever there are only texts: the one form that every server and every template takes. */
function contentOf(parts: readonly Part[]): string | readonly Readonly<Record<string, unknown>>[] {
  if (parts.every((part) => part.type === 'text')) return parts.map((part) => part.text).join('\n');
  return parts.map((part) => {
    switch (part.type) {
      case 'text':
        return { type: 'text', text: part.text };
      case 'image-url':
        return { type: 'image_url', image_url: { url: part.url } };
      case 'file':
        throw new ApiError('unsupported_feature', 'The model takes no files.', { param: part.at });
    }
  });
}

function toolOf(tool: Tool): Readonly<Record<string, unknown>> {
  return {
    type: 'function',
    function: {
      name: tool.name,
      ...(tool.description === undefined ? {} : { description: tool.description }),
      ...(tool.parameters === undefined ? {} : { parameters: tool.parameters }),
    },
  };
}
