import { ApiError } from '../../../platform/errors.ts';
import type { Message, Part, ReasoningText, ToolCall } from '../../../generation/request.ts';
import { present } from '../common-fields.ts';
import { checkFreeForm } from '../validate.ts';
import { decodeContentBlock, decodeTextBlocks, textParts, unknownBlock } from './content.ts';
import type { MessagesRequestBody, WireBlock, WireInnerBlock, WireMessage } from './schema.ts';

/** A decoded conversation. */
export interface Conversation {
  readonly messages: readonly Message[];
  /** The field that names the answered call, by the index of the `tool` message. */
  readonly resultPaths: ReadonlyMap<number, string>;
}

type Prompt = Pick<MessagesRequestBody, 'system' | 'messages'>;

/**
 * Decodes `system` and `messages` (contracts §1.2). Adjacent turns of one role are one turn. A system message keeps its place: moved to the
 * front, it would change the head of the prompt with every turn, and no cache would hit (§0.1).
 */
export function decodeConversation({ system, messages }: Prompt): Conversation {
  const turns = new Turns();
  if (system !== undefined && system !== null) turns.system(withoutBilling(decodeTextBlocks(system, 'system')));
  messages.forEach((message, index) => decodeMessage(message, `messages[${index}].content`, turns));
  const conversation = turns.conversation();
  // An empty system message does not count, and an empty beginning begins nothing: if nothing else is left, the input equals `[]`.
  if (conversation.messages.length === 0)
    throw new ApiError('schema_validation_failed', "'messages' must hold a message.", { param: 'messages' });
  return conversation;
}

function decodeMessage({ role, content }: WireMessage, at: string, turns: Turns): void {
  switch (role) {
    case 'system':
      turns.system(withoutBilling(decodeTextBlocks(content, at)));
      return;
    case 'user':
      if (typeof content === 'string') turns.user(textParts(content));
      else content.forEach((block, index) => decodeUserBlock(block, `${at}[${index}]`, turns));
      return;
    case 'assistant':
      if (typeof content === 'string') turns.assistant({ content: textParts(content) });
      else content.forEach((block, index) => decodeAssistantBlock(block, `${at}[${index}]`, turns));
  }
}

/** Claude Code's first block is about billing, and differs with every request (contracts §0.1). */
const withoutBilling = (parts: readonly Part[]): readonly Part[] =>
  parts.filter((part) => part.type !== 'text' || !part.text.startsWith('x-anthropic-billing-header'));

function decodeUserBlock(block: WireBlock, at: string, turns: Turns): void {
  if (block.type !== 'tool_result') turns.user(decodeContentBlock(contentFieldsOf(block, at), at));
  else turns.result(decodeResult(block, at), block.tool_use_id?.toWellFormed(), `${at}.tool_use_id`);
}

/** A content block contains no blocks that contain blocks: a search result contains texts only. */
function contentFieldsOf(block: WireBlock, at: string): WireInnerBlock {
  const { content } = block;
  if (typeof content !== 'string') return { ...block, content: content ?? null };
  if (block.type !== 'search_result') return { ...block, content: null };
  throw new ApiError('schema_validation_failed', `'${at}.content' must be an array.`, { param: `${at}.content` });
}

function decodeResult({ content, is_error: isError }: WireBlock, at: string): readonly Part[] {
  const reported: Part[] = isError === true ? [{ type: 'text', text: 'Error:' }] : [];
  if (typeof content === 'string') return [...reported, ...textParts(content)];
  const parts = (content ?? []).flatMap((inner, index) => decodeContentBlock(inner, `${at}.content[${index}]`));
  return [...reported, ...parts];
}

function decodeAssistantBlock(block: WireBlock, at: string, turns: Turns): void {
  switch (block.type) {
    case 'text':
      return turns.assistant({ content: textParts(present(block.text, `${at}.text`)) });
    case 'thinking':
      return turns.assistant({ reasoning: [decodeThinking(block, at)] });
    case 'redacted_thinking': {
      const value = present(block.data, `${at}.data`);
      return turns.assistant({ reasoning: [{ text: '', signature: { value, at: `${at}.data` } }] });
    }
    case 'tool_use':
      return turns.assistant({ toolCalls: [decodeCall(block, at)] });
    default:
      throw unknownBlock(at);
  }
}

/** Thinking without a signature comes from elsewhere, for example from chat completions, whose reasoning has none. */
function decodeThinking(block: WireBlock, at: string): ReasoningText {
  const text = present(block.thinking, `${at}.thinking`).toWellFormed();
  const { signature } = block;
  return { text, signature: signature ? { value: signature, at: `${at}.signature` } : undefined };
}

function decodeCall(block: WireBlock, at: string): ToolCall {
  const input = block.input ?? {};
  if (typeof input !== 'object' || Array.isArray(input)) {
    throw new ApiError('schema_validation_failed', `'${at}.input' must be an object.`, { param: `${at}.input` });
  }
  checkFreeForm(input, `${at}.input`);
  return {
    id: present(block.id, `${at}.id`).toWellFormed(),
    name: present(block.name, `${at}.name`).toWellFormed(),
    arguments: JSON.stringify(input),
  };
}

/** A turn to which blocks are being added. */
interface OpenTurn {
  readonly role: WireMessage['role'];
  readonly content: Part[];
  readonly reasoning: ReasoningText[];
  readonly toolCalls: ToolCall[];
  /** Whether results precede the rest of the turn, as messages of their own. */
  hasResults: boolean;
}

/** Combines blocks into turns, and turns into messages. */
class Turns {
  readonly #messages: Message[] = [];
  readonly #resultPaths = new Map<number, string>();
  #open: OpenTurn | undefined;

  system(content: readonly Part[]): void {
    if (content.length > 0) append(this.#turn('system').content, content);
  }

  user(content: readonly Part[]): void {
    append(this.#turn('user').content, content);
  }

  assistant({ content = [], reasoning = [], toolCalls = [] }: Partial<AssistantBlocks>): void {
    const turn = this.#turn('assistant');
    append(turn.content, content);
    append(turn.reasoning, reasoning);
    append(turn.toolCalls, toolCalls);
  }

  /**
   * Adds a result. Results directly follow the turn with the calls, where every template and server expects them; the rest of the user's
   * turn comes after them.
   */
  result(content: readonly Part[], toolCallId: string | undefined, at: string): void {
    const turn = this.#turn('user');
    turn.hasResults = true;
    this.#resultPaths.set(this.#messages.length, at);
    this.#messages.push({ role: 'tool', toolCallId, content });
  }

  conversation(): Conversation {
    this.#close();
    const last = this.#messages.at(-1);
    if (last?.role === 'assistant' && last.toolCalls.length === 0) this.#begin(last);
    return { messages: this.#messages, resultPaths: this.#resultPaths };
  }

  /** A final assistant turn is the beginning of the answer, which then has no thinking; without content it is dropped. */
  #begin(last: Extract<Message, { readonly role: 'assistant' }>): void {
    this.#messages.pop();
    if (last.content.length > 0) this.#messages.push({ ...last, reasoning: [], isBeginning: true });
  }

  #turn(role: OpenTurn['role']): OpenTurn {
    if (this.#open?.role === role) return this.#open;
    this.#close();
    this.#open = { role, content: [], reasoning: [], toolCalls: [], hasResults: false };
    return this.#open;
  }

  #close(): void {
    if (this.#open === undefined) return;
    const { role, content, reasoning, toolCalls, hasResults } = this.#open;
    this.#open = undefined;
    if (role === 'assistant') this.#messages.push({ role, content, reasoning, toolCalls });
    else if (content.length > 0 || !hasResults) this.#messages.push({ role, content });
  }
}

/** Appends one by one: the arguments of a function call are limited in number, a client's blocks are not. */
function append<Item>(list: Item[], added: readonly Item[]): void {
  for (const item of added) list.push(item);
}

type AssistantBlocks = Pick<Extract<Message, { readonly role: 'assistant' }>, 'content' | 'reasoning' | 'toolCalls'>;
