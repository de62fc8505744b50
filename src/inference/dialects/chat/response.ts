import type { ErrorBody } from '../../../platform/errors.ts';
import { knownUsage } from '../../../generation/event.ts';
import type {
  FinishReason,
  GenerationBatch,
  GenerationEvent,
  TokenLogprob,
  TokenProbability,
  Usage,
} from '../../../generation/event.ts';
import type { Block, Choice, Generation } from '../../../generation/fold.ts';
import { tierField, type ResponseHead, type StreamEncoder } from '../dialect.ts';

/** Encodes a whole answer (specification §2.5) as JSON text. */
export function encodeChatResponse(generation: Generation, head: ResponseHead): string {
  const choices = generation.choices.map(encodeChoice).join(',');
  // Assembled like the chunks of a stream: half the time of one `JSON.stringify` for all of it.
  return `{"id":${JSON.stringify(completionId(head))},"object":"chat.completion","created":${head.created},"model":${JSON.stringify(head.model)},${tierField(head)}"choices":[${choices}],"usage":${usageJson(generation.usage)}}`;
}

function encodeChoice(choice: Choice): string {
  const toolCalls = choice.blocks.filter((block) => block.type === 'tool-call');
  const text = joined(choice.blocks, 'text');
  const content = text === '' && toolCalls.length > 0 ? null : text;
  const reasoning = joined(choice.blocks, 'reasoning') || null;
  const calls =
    toolCalls.length === 0
      ? null
      : toolCalls.map((call) => ({
          id: call.id,
          type: 'function',
          function: { name: call.name, arguments: call.arguments },
        }));
  const logprobs = choice.logprobs.length === 0 ? 'null' : logprobsJson(choice.logprobs);
  // OpenAI's schema requires `refusal` (contracts §1.5).
  const message = `{"role":"assistant","content":${JSON.stringify(content)},"reasoning_content":${JSON.stringify(reasoning)},"refusal":null,"tool_calls":${JSON.stringify(calls)}}`;
  return `{"index":${choice.index},"message":${message},"logprobs":${logprobs},"finish_reason":"${finishReason(choice.finish.reason)}"}`;
}

const joined = (blocks: readonly Block[], type: 'text' | 'reasoning'): string =>
  blocks.reduce((text, block) => (block.type === type ? text + block.text : text), '');

/**
 * Encodes a stream (specification part 6 and §2.7): for each choice a chunk with the role, its deltas, a chunk with the finish reason and
 * an empty delta; then one chunk with the usage and no choices; then `[DONE]`.
 */
export function openChatStream(head: ResponseHead): StreamEncoder {
  const common = `data: {"id":${JSON.stringify(completionId(head))},"object":"chat.completion.chunk","created":${head.created},"model":${JSON.stringify(head.model)},${tierField(head)}"choices":[`;
  const started = new Set<number>();

  const chunk = (index: number, delta: string, logprobs: string, finish: string): string =>
    `${common}{"index":${index},"delta":${delta},"logprobs":${logprobs},"finish_reason":${finish}}]}\n\n`;

  /** Returns the chunk of a delta, preceded by the chunk with the role if it is the choice's first. */
  const delta = (index: number, json: string, logprobs = 'null', finish = 'null'): string => {
    const text = chunk(index, json, logprobs, finish);
    if (started.has(index)) return text;
    started.add(index);
    return chunk(index, '{"role":"assistant","content":""}', 'null', 'null') + text;
  };

  /** The part before the text, for each choice: nearly all chunks differ only in the text. */
  const beforeText: string[] = [];
  const textChunk = (index: number, text: string): string => {
    const before = (beforeText[index] ??= `${common}{"index":${index},"delta":{"content":`);
    return `${before}${JSON.stringify(text)}},"logprobs":null,"finish_reason":null}]}\n\n`;
  };

  const print = (event: GenerationEvent): string => {
    switch (event.type) {
      case 'start':
      case 'prompt':
      case 'vector':
      case 'score':
        return '';
      case 'text':
        if (event.logprobs === undefined && started.has(event.choice)) return textChunk(event.choice, event.text);
        return delta(
          event.choice,
          `{"content":${JSON.stringify(event.text)}}`,
          event.logprobs ? logprobsJson(event.logprobs) : 'null',
        );
      case 'reasoning':
        return delta(event.choice, `{"reasoning_content":${JSON.stringify(event.text)}}`);
      case 'tool-call':
        // §4.2.2(6): the first delta of a call carries id, type and name; later ones carry only fragments of the arguments.
        return delta(
          event.choice,
          JSON.stringify({
            tool_calls: [
              { index: event.call, id: event.id, type: 'function', function: { name: event.name, arguments: '' } },
            ],
          }),
        );
      case 'tool-arguments':
        return delta(
          event.choice,
          JSON.stringify({ tool_calls: [{ index: event.call, function: { arguments: event.text } }] }),
        );
      case 'finish':
        return delta(event.choice, '{}', 'null', `"${finishReason(event.reason)}"`);
      case 'usage':
        return `${common}],"usage":${usageJson(knownUsage(event.usage))}}\n\n`;
    }
  };

  return {
    batch(batch: GenerationBatch): string {
      let text = '';
      for (const event of batch) text += print(event);
      return text;
    },
    end: () => 'data: [DONE]\n\n',
    // A separate event, then [DONE] (contracts §0.8 and §1.0); no usage follows.
    error: (error: ErrorBody) => `data: ${JSON.stringify({ error })}\n\ndata: [DONE]\n\n`,
  };
}

/** Encodes an error before the stream has started (specification §7.1). */
export const encodeChatError = (error: ErrorBody): string => JSON.stringify({ error });

const completionId = (head: ResponseHead): string => `chatcmpl-${head.id}`;

function finishReason(reason: FinishReason): string {
  switch (reason) {
    case 'stop':
    case 'length':
      return reason;
    case 'tool-calls':
      return 'tool_calls';
  }
}

const usageJson = ({ promptTokens, cachedTokens, completionTokens, reasoningTokens }: Usage): string =>
  `{"prompt_tokens":${promptTokens},"completion_tokens":${completionTokens},"total_tokens":${promptTokens + completionTokens},"prompt_tokens_details":{"cached_tokens":${cachedTokens}},"completion_tokens_details":{"reasoning_tokens":${reasoningTokens}}}`;

const logprobsJson = (logprobs: readonly TokenLogprob[]): string =>
  JSON.stringify({ content: logprobs.map(encodeLogprob), refusal: null });

function encodeLogprob(entry: TokenLogprob) {
  return { ...tokenFields(entry), top_logprobs: entry.top.map(tokenFields) };
}

const tokenFields = ({ token, logprob, bytes }: TokenProbability) => ({
  token,
  // JSON has no infinities; this is the value other servers write for a token that could not be chosen.
  logprob: Math.max(logprob, -9999),
  bytes: bytes ?? [...Buffer.from(token)],
});
