import { ApiError } from '../../../platform/errors.ts';
import type { Message, Part, ReasoningText, ToolCall } from '../../../generation/request.ts';
import { shapeCheck } from '../validate.ts';
import {
  callOutputSchema,
  customToolCallSchema,
  filePartSchema,
  functionCallSchema,
  imagePartSchema,
  itemReferenceSchema,
  messageSchema,
  reasoningSchema,
  refusalPartSchema,
  textPartSchema,
} from './schema.ts';
import type { ResponsesRequestBody } from './schema.ts';

/** The conversation that `input` describes. */
export interface DecodedInput {
  readonly messages: readonly Message[];
  /** The index in `input` of the first item of each message. */
  readonly itemOf: readonly number[];
  /** Ids of items of earlier answers, given instead of their content. */
  readonly references: readonly string[];
}

type Items = Extract<ResponsesRequestBody['input'], readonly unknown[]>;
type Item = Items[number];
type Kind =
  | 'message'
  | 'function_call'
  | 'function_call_output'
  | 'custom_tool_call'
  | 'custom_tool_call_output'
  | 'reasoning'
  | 'item_reference'
  | 'skipped';

/** More would mean a conversation of thousands of turns, each referenced by id. */
const referencesMax = 4096;

/**
 * Decodes items into messages. Adjacent assistant items (reasoning, message, calls) become one turn. `known`: the referenced items;
 * `undefined` before the lookup: references are then left out.
 */
export function decodeInput(
  input: ResponsesRequestBody['input'],
  known: ReadonlyMap<string, unknown> | undefined,
): DecodedInput {
  if (typeof input === 'string') {
    return { messages: [{ role: 'user', content: textParts(input) }], itemOf: [0], references: [] };
  }
  const turns = new Turns();
  const references = new Set<string>();
  input.forEach((item, index) => {
    const at = `input[${index}]`;
    if (kindOf(item, at) !== 'item_reference') {
      decodeItem(item, index, at, turns);
      return;
    }
    const { id } = checkReference(item, at);
    if (references.has(id)) throw refused(at, 'The same item is referenced twice.');
    references.add(id);
    if (references.size > referencesMax) {
      throw refused(at, `There are more than ${referencesMax} references to items; send the items themselves.`);
    }
    if (known === undefined) return;
    const found = known.get(id) as Item | undefined;
    if (found !== undefined) decodeItem(found, index, at, turns);
    // Contracts §0.5: a reference to missing reasoning is ignored, one to a missing message is not.
    else if (!id.startsWith('rs_')) throw unresolved(at);
  });
  const { messages, itemOf } = turns.close();
  if (messages.length === 0 && (references.size === 0 || known !== undefined)) {
    throw new ApiError('schema_validation_failed', "'input' must hold a message.", { param: 'input' });
  }
  return { messages, itemOf, references: [...references] };
}

const unresolved = (at: string): ApiError =>
  new ApiError(
    'unsupported_parameter',
    'The referenced item is not stored: items of answers are stored for the account of the request, for a limited time, ' +
      "and never with 'store': false or zero data retention. Send the item itself, or set 'store' to false so that your client does.",
    { param: at },
  );

const refused = (param: string, message: string): ApiError => new ApiError('unsupported_value', message, { param });

/** Items of tools that run on other vendors' servers: they do not come from here, and no model on offer knows them. */
const hostedItems: ReadonlySet<string> = new Set([
  'web_search_call',
  'file_search_call',
  'code_interpreter_call',
  'image_generation_call',
  'computer_call',
  'computer_call_output',
  'local_shell_call',
  'local_shell_call_output',
  'shell_call',
  'shell_call_output',
  'apply_patch_call',
  'apply_patch_call_output',
  'mcp_list_tools',
  'mcp_approval_request',
  'mcp_approval_response',
  'mcp_call',
  'tool_search_call',
  'tool_search_output',
]);

function kindOf(item: Item, at: string): Kind {
  const { type } = item;
  switch (type) {
    case undefined:
    case null:
      // A message without a type has a role; a bare reference has only an id.
      return typeof item.id === 'string' && !('role' in item) && !('content' in item) ? 'item_reference' : 'message';
    case 'message':
    case 'function_call':
    case 'function_call_output':
    case 'custom_tool_call':
    case 'custom_tool_call_output':
    case 'reasoning':
    case 'item_reference':
      return type;
  }
  if (hostedItems.has(type)) return 'skipped';
  throw refused(`${at}.type`, 'This type of item is unknown or not supported.');
}

const checkMessage = shapeCheck(messageSchema);
const checkFunctionCall = shapeCheck(functionCallSchema);
const checkCustomToolCall = shapeCheck(customToolCallSchema);
const checkCallOutput = shapeCheck(callOutputSchema);
const checkReasoning = shapeCheck(reasoningSchema);
const checkReference = shapeCheck(itemReferenceSchema);

function decodeItem(item: Item, index: number, at: string, turns: Turns): void {
  switch (kindOf(item, at)) {
    case 'message': {
      const { role, content } = checkMessage(item, at);
      const parts = decodeContent(content, `${at}.content`);
      if (role === 'assistant') turns.said(index, parts);
      else turns.other(index, { role: role === 'user' ? 'user' : 'system', content: parts });
      return;
    }
    case 'function_call': {
      const call = checkFunctionCall(item, at);
      turns.called(index, called(call.call_id, call.name, call.arguments));
      return;
    }
    case 'custom_tool_call': {
      // Custom tools take free text; templates and engines only know calls with JSON.
      const call = checkCustomToolCall(item, at);
      turns.called(index, called(call.call_id, call.name, JSON.stringify({ input: call.input.toWellFormed() })));
      return;
    }
    case 'function_call_output':
    case 'custom_tool_call_output': {
      const { call_id: id, output } = checkCallOutput(item, at);
      const content = decodeContent(output, `${at}.output`);
      turns.other(index, { role: 'tool', toolCallId: id?.toWellFormed(), content });
      return;
    }
    case 'reasoning':
      turns.thought(index, decodeReasoning(item, at));
      return;
    case 'item_reference':
      throw refused(at, 'A stored item cannot be a reference.');
    case 'skipped':
      return;
  }
}

const called = (id: string, name: string, text: string): ToolCall => ({
  id: id.toWellFormed(),
  name: name.toWellFormed(),
  arguments: text.toWellFormed(),
});

/** Decodes either form that the client sends back: here the summary is the whole text (contracts decision 4). */
function decodeReasoning(item: Item, at: string): ReasoningText {
  const { summary, content, encrypted_content: encrypted } = checkReasoning(item, at);
  const parts = summary?.length ? summary : (content ?? []);
  return {
    text: parts
      .map(({ text }) => text)
      .join('\n')
      .toWellFormed(),
    signature: encrypted ? { value: encrypted, at: `${at}.encrypted_content` } : undefined,
  };
}

const checkText = shapeCheck(textPartSchema);
const checkRefusal = shapeCheck(refusalPartSchema);
const checkImage = shapeCheck(imagePartSchema);
const checkFile = shapeCheck(filePartSchema);

const textParts = (text: string): readonly Part[] => (text === '' ? [] : [{ type: 'text', text: text.toWellFormed() }]);

function decodeContent(
  content: string | readonly { readonly type: string }[] | null | undefined,
  at: string,
): readonly Part[] {
  if (content === undefined || content === null) return [];
  if (typeof content === 'string') return textParts(content);
  return content.map((part, index) => decodePart(part, `${at}[${index}]`));
}

function decodePart(part: { readonly type: string }, at: string): Part {
  switch (part.type) {
    case 'input_text':
    case 'output_text':
    case 'text':
    case 'summary_text':
    case 'reasoning_text':
      return { type: 'text', text: checkText(part, at).text.toWellFormed() };
    case 'refusal':
      return { type: 'text', text: checkRefusal(part, at).refusal.toWellFormed() };
    case 'input_image': {
      const { image_url: image, file_id: fileId } = checkImage(part, at);
      if (typeof image === 'string') return { type: 'image-url', url: image, at: `${at}.image_url` };
      if (image) return { type: 'image-url', url: image.url, at: `${at}.image_url.url` };
      if (typeof fileId === 'string')
        return { type: 'file', fileId, data: undefined, filename: undefined, at: `${at}.file_id` };
      throw new ApiError('schema_validation_failed', `'${at}.image_url' is required.`, { param: `${at}.image_url` });
    }
    case 'input_file': {
      const file = checkFile(part, at);
      if (typeof file.file_id === 'string' || typeof file.file_data === 'string') {
        return {
          type: 'file',
          fileId: file.file_id ?? undefined,
          data: file.file_data ?? undefined,
          filename: file.filename ?? undefined,
          at: `${at}.${typeof file.file_id === 'string' ? 'file_id' : 'file_data'}`,
        };
      }
      if (typeof file.file_url === 'string') {
        const { file_url: url, filename } = file;
        return {
          type: 'file',
          fileId: undefined,
          data: undefined,
          url,
          filename: filename ?? undefined,
          at: `${at}.file_url`,
        };
      }
      throw new ApiError('schema_validation_failed', `'${at}.file_data' is required.`, { param: `${at}.file_data` });
    }
    case 'input_audio':
      throw refused(`${at}.type`, 'Audio input is not supported.');
    default:
      throw refused(`${at}.type`, 'This type of content is unknown or not supported.');
  }
}

/** Combines items into the messages of a conversation. */
class Turns {
  readonly #messages: Message[] = [];
  readonly #itemOf: number[] = [];
  #turn: { readonly item: number; content: Part[]; reasoning: ReasoningText[]; toolCalls: ToolCall[] } | undefined;

  said(item: number, content: readonly Part[]): void {
    this.#open(item).content.push(...content);
  }

  thought(item: number, reasoning: ReasoningText): void {
    this.#open(item).reasoning.push(reasoning);
  }

  called(item: number, call: ToolCall): void {
    this.#open(item).toolCalls.push(call);
  }

  other(item: number, message: Message): void {
    this.#endTurn();
    this.#messages.push(message);
    this.#itemOf.push(item);
  }

  close(): { readonly messages: readonly Message[]; readonly itemOf: readonly number[] } {
    this.#endTurn();
    return { messages: this.#messages, itemOf: this.#itemOf };
  }

  #open(item: number) {
    return (this.#turn ??= { item, content: [], reasoning: [], toolCalls: [] });
  }

  #endTurn(): void {
    const turn = this.#turn;
    this.#turn = undefined;
    if (turn === undefined) return;
    const { item, content, reasoning, toolCalls } = turn;
    this.#messages.push({ role: 'assistant', content, reasoning, toolCalls });
    this.#itemOf.push(item);
  }
}
