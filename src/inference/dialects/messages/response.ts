import type { ErrorBody, ErrorCode } from '../../../platform/errors.ts';
import { knownUsage } from '../../../generation/event.ts';
import type { GenerationBatch, GenerationEvent, Usage } from '../../../generation/event.ts';
import type { Block, Finish, Generation } from '../../../generation/fold.ts';
import { Blocks } from '../blocks.ts';
import type { BlockEvent } from '../blocks.ts';
import type { ResponseHead, StreamEncoder } from '../dialect.ts';

/** The fields of a request that affect the encoding of its answer. */
export interface MessageStyle {
  /** From version 2026-10-21 on the API has more fields, all of which an older client may refuse (contracts §1.2). */
  readonly isRecent: boolean;
  /** Thinking is reported, with its text encrypted in the signature, but not shown. */
  readonly omitsThinking: boolean;
}

/** Encodes a whole answer as JSON text. */
export function encodeMessage({ choices, usage }: Generation, head: ResponseHead, style: MessageStyle): string {
  const { blocks = [], finish } = choices[0] ?? {};
  if (finish === undefined) throw new Error('an answer without a choice');
  const content = blocks.map((block) => wholeBlock(block, head, style)).join(',');
  return `{${messageHead(head)},"content":[${content}],${stopFields(finish, style)}${nullFields(style)},"usage":${usageJson(usage, head, style)}}`;
}

/** The beginning of an answer, whole or streamed. */
const messageHead = (head: ResponseHead): string =>
  `"id":"msg_${head.id}","type":"message","role":"assistant","model":${JSON.stringify(head.model)}`;

/** Fields of the recent version that are always null here. */
const nullFields = ({ isRecent }: MessageStyle): string => (isRecent ? ',"container":null,"diagnostics":null' : '');

function wholeBlock(block: Block, head: ResponseHead, style: MessageStyle): string {
  switch (block.type) {
    case 'text':
      return `{"type":"text","text":${JSON.stringify(block.text)}${citations(style)}}`;
    case 'reasoning': {
      const thinking = style.omitsThinking ? '""' : JSON.stringify(block.text);
      return `{"type":"thinking","thinking":${thinking},"signature":${signatureOf(block.text, head, style)}}`;
    }
    case 'tool-call':
      return `{${toolUseHead(block)},"input":${inputJson(block.arguments)}${caller(style)}}`;
  }
}

const citations = ({ isRecent }: MessageStyle): string => (isRecent ? ',"citations":null' : '');
const caller = ({ isRecent }: MessageStyle): string => (isRecent ? ',"caller":{"type":"direct"}' : '');

const toolUseHead = ({ id, name }: Extract<Block, { type: 'tool-call' }>): string =>
  `"type":"tool_use","id":${JSON.stringify(toolUseId(id))},"name":${JSON.stringify(name)}`;

/**
 * Calls have the same form of ids in every family except this one, whose clients expect another. Ids that come back are accepted as they
 * are, including those of calls that another family reported, so a conversation may switch between families.
 */
const toolUseId = (id: string): string => `toolu_${id.startsWith('call_') ? id.slice('call_'.length) : id}`;

/** Returns the arguments as the model wrote them if they are an object, as `input` must be. */
function inputJson(text: string): string {
  if (isBlank(text)) return '{}';
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return text.trim();
  } catch {
    // Cut off, for example by `max_tokens`.
  }
  // The vendor's documented form for arguments that are not JSON.
  return `{"INVALID_JSON":${JSON.stringify(text)}}`;
}

/** Whitespace, as JSON defines it. */
const isBlank = (text: string): boolean => /^[ \t\n\r]*$/.test(text);

/** Proves that the text is ours; if the text is not shown, the signature contains it, so that it is available when the block comes back. */
const signatureOf = (text: string, { signer }: ResponseHead, { omitsThinking }: MessageStyle): string =>
  JSON.stringify(omitsThinking ? signer.encrypt(text) : signer.sign(text));

function stopFields(finish: Finish | undefined, { isRecent }: MessageStyle): string {
  const sequence = finish?.reason === 'stop' ? finish.stopSequence : undefined;
  const reason = finish === undefined ? 'null' : `"${stopReason(finish)}"`;
  return `"stop_reason":${reason},"stop_sequence":${JSON.stringify(sequence ?? null)}${isRecent ? ',"stop_details":null' : ''}`;
}

function stopReason({ reason, stopSequence, cause }: Finish): string {
  switch (reason) {
    case 'stop':
      return stopSequence === undefined ? 'end_turn' : 'stop_sequence';
    case 'length':
      return cause === 'window' ? 'model_context_window_exceeded' : 'max_tokens';
    case 'tool-calls':
      return 'tool_use';
  }
}

/** In this API the input excludes cached tokens; the full input is the sum of the three. */
const inputFields = ({ promptTokens, cachedTokens }: Pick<Usage, 'promptTokens' | 'cachedTokens'>): string =>
  `"input_tokens":${promptTokens - cachedTokens},"cache_creation_input_tokens":0,"cache_read_input_tokens":${cachedTokens}`;

const outputFields = (outputTokens: number, thinkingTokens: number): string =>
  `"output_tokens":${outputTokens},"output_tokens_details":{"thinking_tokens":${thinkingTokens}}`;

/** This API has no word for a place that costs less than the standard. */
const standing = ({ tier }: ResponseHead): string => (tier === 'priority' || tier === 'batch' ? tier : 'standard');

function usageJson(
  usage: Usage,
  head: ResponseHead,
  { isRecent }: MessageStyle,
  outputTokens = usage.completionTokens,
): string {
  const recent = isRecent ? ',"cache_creation":null,"inference_geo":null,"server_tool_use":null,"speed":null' : '';
  return `{${inputFields(usage)},${outputFields(outputTokens, usage.reasoningTokens)},"service_tier":"${standing(head)}"${recent}}`;
}

/**
 * Encodes a stream (contracts §1.2): the message without content, its blocks one after the other, the stop reason with the usage, and the
 * end. Built by hand, because every token passes through here.
 */
export function openMessageStream(head: ResponseHead, style: MessageStyle): StreamEncoder {
  const blocks = new Blocks();
  let isOpen = false;
  let finish: Finish | undefined;

  const open = (start: Extract<GenerationEvent, { type: 'start' }> | undefined): string => {
    if (isOpen) return '';
    isOpen = true;
    // Some backends report the length of the prompt only at the end: then only the last event has it.
    const promptTokens = start?.promptTokens ?? 0;
    const cachedTokens = Math.min(start?.cachedTokens ?? 0, promptTokens);
    const usage = usageJson({ promptTokens, cachedTokens, completionTokens: 0, reasoningTokens: 0 }, head, style, 1);
    const message = `{${messageHead(head)},"content":[],${stopFields(undefined, style)}${nullFields(style)},"usage":${usage}}`;
    return `event: message_start\ndata: {"type":"message_start","message":${message}}\n\nevent: ping\ndata: {"type":"ping"}\n\n`;
  };

  const printBlock = (event: BlockEvent): string => {
    const { index, block } = event;
    switch (event.type) {
      case 'open':
        return `event: content_block_start\ndata: {"type":"content_block_start","index":${index},"content_block":${emptyBlock(block, style)}}\n\n`;
      case 'delta':
        if (block.type === 'reasoning' && style.omitsThinking) return '';
        return delta(index, `${deltaHeads[block.type]}${JSON.stringify(event.text)}`);
      case 'close':
        return `${lastDelta(block, index)}event: content_block_stop\ndata: {"type":"content_block_stop","index":${index}}\n\n`;
    }
  };

  const lastDelta = (block: Block, index: number): string => {
    switch (block.type) {
      case 'text':
        return '';
      case 'reasoning':
        return delta(index, `"type":"signature_delta","signature":${signatureOf(block.text, head, style)}`);
      case 'tool-call':
        // Clients parse the joined fragments, and an empty text is not JSON.
        return isBlank(block.arguments) ? delta(index, '"type":"input_json_delta","partial_json":"{}"') : '';
    }
  };

  const printBlocks = (events: readonly BlockEvent[]): string => {
    let text = '';
    for (const event of events) text += printBlock(event);
    return text;
  };

  const print = (event: GenerationEvent): string => {
    switch (event.type) {
      case 'start':
        return open(event);
      case 'prompt':
      case 'vector':
      case 'score':
        return '';
      case 'text':
      case 'reasoning':
      case 'tool-call':
      case 'tool-arguments':
        return event.choice === 0 ? open(undefined) + printBlocks(blocks.read(event)) : '';
      case 'finish':
        if (event.choice === 0) {
          const { reason, stopSequence, stopTokenId, cause } = event;
          finish = { reason, stopSequence, stopTokenId, cause };
        }
        return '';
      case 'usage': {
        const usage = knownUsage(event.usage);
        const recent = style.isRecent ? ',"container":null' : '';
        const server = style.isRecent ? ',"server_tool_use":null' : '';
        return `${open(undefined)}${printBlocks(blocks.close())}event: message_delta\ndata: {"type":"message_delta","delta":{${stopFields(finish, style)}${recent}},"usage":{${inputFields(usage)},${outputFields(usage.completionTokens, usage.reasoningTokens)}${server}}}\n\n`;
      }
    }
  };

  return {
    batch(batch: GenerationBatch): string {
      let text = '';
      for (const event of batch) text += print(event);
      return text;
    },
    end: () => 'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    error: (error: ErrorBody) =>
      `event: error\ndata: ${errorJson({ ...error, type: streamErrorTypes[error.code] ?? 'api_error' })}\n\n`,
  };
}

const delta = (index: number, fields: string): string =>
  `event: content_block_delta\ndata: {"type":"content_block_delta","index":${index},"delta":{${fields}}}\n\n`;

const deltaHeads = {
  text: '"type":"text_delta","text":',
  reasoning: '"type":"thinking_delta","thinking":',
  'tool-call': '"type":"input_json_delta","partial_json":',
} as const satisfies Record<Block['type'], string>;

function emptyBlock(block: Block, style: MessageStyle): string {
  switch (block.type) {
    case 'text':
      return `{"type":"text","text":""${citations(style)}}`;
    case 'reasoning':
      return '{"type":"thinking","thinking":"","signature":""}';
    case 'tool-call':
      return `{${toolUseHead(block)},"input":{}${caller(style)}}`;
  }
}

/** Encodes an error before the stream has started (specification §7.1, contracts §1.2 "Errors"). */
export const encodeMessagesError = (error: ErrorBody): string => errorJson(error);

/** The inner error object; in a stream its type is specific to this API. */
interface MappedError {
  readonly type: string;
  readonly code: ErrorCode;
  readonly message: string;
  readonly [extra: string]: unknown;
}

function errorJson(error: MappedError): string {
  const { details = { error_code: error.code } } = error;
  const reported = { ...error, message: messageOf(error), details };
  return JSON.stringify({ type: 'error', error: reported, request_id: error['request_id'] });
}

/**
 * Clients look for two phrases, with their numbers, at the beginning of the message: one makes them retry with a lower limit, the other
 * makes them shorten the conversation (contracts §0.10).
 */
function messageOf(error: MappedError): string {
  const { prompt_tokens: reported, max_tokens: maxTokens, context_length_limit: limit } = error;
  if (error.code !== 'context_length_exceeded' || typeof limit !== 'number') return error.message;
  // A prompt that was not counted because it is far too long has at least one token too many.
  const promptTokens = typeof reported === 'number' ? reported : limit + 1;
  const phrase =
    promptTokens < limit && typeof maxTokens === 'number'
      ? `input length and \`max_tokens\` exceed context limit: ${promptTokens} + ${maxTokens} > ${limit}`
      : `prompt is too long: ${promptTokens} tokens > ${limit} maximum`;
  return `${phrase}. ${error.message}`;
}

/** In a stream the type decides whether clients retry (contracts §1.0, decision 5). */
const streamErrorTypes: Partial<Record<ErrorCode, string>> = {
  backend_at_capacity: 'overloaded_error',
  backend_overloaded: 'overloaded_error',
  no_healthy_backends: 'overloaded_error',
  backend_timeout: 'timeout_error',
  // The key was revoked: a retry would be refused (money.md, "The table of endings").
  invalid_api_key: 'authentication_error',
};
