import type { ErrorBody } from '../../../platform/errors.ts';
import { knownUsage } from '../../../generation/event.ts';
import type { GenerationBatch, GenerationEvent, PromptToken, ReadPrompt, Usage } from '../../../generation/event.ts';
import type { Choice, Finish, Generation } from '../../../generation/fold.ts';
import { tierField, tierName, type AnswerFormat, type ResponseHead, type StreamEncoder } from '../dialect.ts';
import { encodeLogprobs } from './logprobs.ts';
import type { LogprobsForm } from './logprobs.ts';
import { TextOffsets } from './text-offsets.ts';
import type { CompletionRequest } from './request.ts';

/** The fields of a request that affect the encoding of its answer. */
interface Form {
  readonly echo: boolean;
  readonly returnsIds: boolean;
  readonly stopIds: readonly number[];
  /** `undefined`: no logprobs. */
  readonly logprobs: LogprobsForm | undefined;
}

/**
 * Returns the format of the answer to a request (contracts §1.1). Separate reasoning and tool calls have no place in this API and are
 * omitted; their tokens are counted.
 */
export function completionFormat({ tokens, logprobs }: CompletionRequest): AnswerFormat {
  const form: Form = {
    echo: tokens.echo,
    returnsIds: tokens.returnsIds,
    stopIds: tokens.stopIds,
    logprobs: logprobs === undefined ? undefined : { top: logprobs, namesIds: tokens.namesIds },
  };
  return {
    encodeResponse: (generation, head) => encodeCompletion(generation, head, form),
    openStream: (head) => openCompletionStream(head, form),
  };
}

function encodeCompletion(generation: Generation, head: ResponseHead, form: Form): string {
  return JSON.stringify({
    id: completionId(head),
    object: 'text_completion',
    created: head.created,
    model: head.model,
    ...(head.tier === undefined ? {} : { service_tier: tierName(head) }),
    choices: generation.choices.map((choice) => encodeChoice(choice, form)),
    usage: encodeUsage(generation.usage),
  });
}

function encodeChoice({ index, prompt, blocks, logprobs, tokenIds, finish }: Choice, form: Form) {
  const shown = form.echo ? prompt : undefined;
  const text = blocks.reduce((sum, block) => (block.type === 'text' ? sum + block.text : sum), '');
  const offsets = new TextOffsets();
  const before = promptTokens(shown, offsets);
  return {
    index,
    text: (shown?.text ?? '') + text,
    logprobs:
      form.logprobs === undefined ? null : encodeLogprobs([...before, ...offsets.of(text, logprobs)], form.logprobs),
    finish_reason: finishReason(finish),
    ...stopFields(finish, form),
    ...(form.returnsIds ? { token_ids: tokenIds, prompt_token_ids: prompt?.tokenIds ?? [] } : {}),
  };
}

/** Places the tokens of an echoed prompt; those that follow belong to the answer. */
function promptTokens(prompt: ReadPrompt | undefined, offsets: TextOffsets) {
  const found = offsets.of<PromptToken>(prompt?.text ?? '', prompt?.tokens ?? []);
  offsets.endPart();
  return found;
}

/**
 * Encodes a stream: the deltas of each choice, starting with the echoed prompt if requested, then a chunk with its finish reason; then one
 * chunk with the usage and no choices; then `[DONE]`. Its joined chunks equal the whole answer.
 */
function openCompletionStream(head: ResponseHead, form: Form): StreamEncoder {
  const common = `data: {"id":${JSON.stringify(completionId(head))},"object":"text_completion","created":${head.created},"model":${JSON.stringify(head.model)},${tierField(head)}"choices":[`;
  const offsets = new Map<number, TextOffsets>();
  /** Prompt token ids that no chunk has carried yet. */
  const unsent = new Map<number, readonly number[]>();

  const chunk = (index: number, text: string, logprobs: string, finish: string, ids: readonly number[]): string => {
    const prompt = unsent.get(index);
    unsent.delete(index);
    const reported = form.returnsIds
      ? `,"token_ids":${JSON.stringify(ids)}${prompt === undefined ? '' : `,"prompt_token_ids":${JSON.stringify(prompt)}`}`
      : '';
    return `${common}{"index":${index},"text":${JSON.stringify(text)},"logprobs":${logprobs},"finish_reason":${finish}${reported}}]}\n\n`;
  };
  const offsetsOf = (index: number): TextOffsets => {
    const known = offsets.get(index);
    if (known !== undefined) return known;
    const made = new TextOffsets();
    offsets.set(index, made);
    return made;
  };
  const logprobsJson = (found: ReturnType<TextOffsets['of']>): string =>
    form.logprobs === undefined || found.length === 0 ? 'null' : JSON.stringify(encodeLogprobs(found, form.logprobs));

  const print = (event: GenerationEvent): string => {
    switch (event.type) {
      case 'prompt': {
        const { choice, text, tokenIds } = event;
        if (form.returnsIds && tokenIds !== undefined) unsent.set(choice, tokenIds);
        if (!form.echo) return '';
        const found = form.logprobs === undefined ? [] : promptTokens(event, offsetsOf(choice));
        return chunk(choice, text, logprobsJson(found), 'null', []);
      }
      case 'text': {
        const { choice, text, logprobs = [], tokenIds = [] } = event;
        if (form.logprobs === undefined) {
          return text === '' && (tokenIds.length === 0 || !form.returnsIds)
            ? ''
            : chunk(choice, text, 'null', 'null', tokenIds);
        }
        const found = offsetsOf(choice).of(text, logprobs);
        if (text === '' && found.length === 0 && (tokenIds.length === 0 || !form.returnsIds)) return '';
        return chunk(choice, text, logprobsJson(found), 'null', tokenIds);
      }
      case 'finish': {
        const { reason, stopSequence, stopTokenId } = event;
        const { matched_stop } = stopFields({ reason, stopSequence, stopTokenId }, form);
        const stop = JSON.stringify(matched_stop);
        const finish = `"${finishReason(event)}","matched_stop":${stop},"stop_reason":${stop}`;
        return chunk(event.choice, '', 'null', finish, []);
      }
      case 'usage':
        return `${common}],"usage":${JSON.stringify(encodeUsage(knownUsage(event.usage)))}}\n\n`;
      case 'start':
      case 'vector':
      case 'score':
      case 'reasoning':
      case 'tool-call':
      case 'tool-arguments':
        return '';
    }
  };

  return {
    batch(batch: GenerationBatch): string {
      let text = '';
      for (const event of batch) text += print(event);
      return text;
    },
    end: () => 'data: [DONE]\n\n',
    // A separate event, then [DONE] (contracts §1.0); no usage follows.
    error: (error: ErrorBody) => `data: ${JSON.stringify({ error })}\n\ndata: [DONE]\n\n`,
  };
}

/** Encodes an error before the stream has started (specification §7.1). */
export const encodeCompletionError = (error: ErrorBody): string => JSON.stringify({ error });

const completionId = (head: ResponseHead): string => `cmpl-${head.id}`;

/** Every answer is text here, so there is no finish by a call. */
const finishReason = ({ reason }: Pick<Finish, 'reason'>): 'stop' | 'length' =>
  reason === 'length' ? 'length' : 'stop';

/**
 * What ended the answer, under SGLang's name and under vLLM's: a stop sequence or a token that the client named; null for the model's own
 * end.
 */
function stopFields({ reason, stopSequence, stopTokenId }: Omit<Finish, 'cause'>, { stopIds }: Form) {
  const named = stopTokenId !== undefined && stopIds.includes(stopTokenId) ? stopTokenId : null;
  const stop = reason === 'length' ? null : (stopSequence ?? named);
  return { matched_stop: stop, stop_reason: stop };
}

function encodeUsage(usage: Usage) {
  return {
    prompt_tokens: usage.promptTokens,
    completion_tokens: usage.completionTokens,
    total_tokens: usage.promptTokens + usage.completionTokens,
    prompt_tokens_details: { cached_tokens: usage.cachedTokens },
    completion_tokens_details: { reasoning_tokens: usage.reasoningTokens },
  };
}
