import { randomBytes } from 'node:crypto';
import { Template } from '@huggingface/jinja';
import { ApiError } from '../../errors.ts';
import type { Message, Part, ToolCall } from '../../generation/request.ts';

/** A stretch of a rendered prompt: written by the template, or by the client. */
export interface Piece {
  readonly text: string;
  readonly client: boolean;
}

/**
 * A model's chat template, rendered so that it stays known who wrote what (reliability §3.4).
 *
 * The template never sees a client's text. What it gets in place of each string is a marker between the string's own leading
 * and trailing white space, so that `trim`, `is string`, `length`, concatenation and comparison do what they would do with the
 * text; the same text has the same marker. Afterwards the markers are exchanged for the texts. Nothing that a client writes can
 * be taken for a marker, because only white space of a client is ever looked at. A marker passes `tojson` in escaped form and
 * its text is then escaped likewise. A template that takes a text apart (slices, `split` on a marker's inside, changes of
 * case) leaves fragments or loses the marker: that request is refused rather than rendered from the bare text. Conditions on
 * the inside of a text (`'</think>' in content`) are false: clients do not steer the template.
 *
 * Templates come from model files only; a template that never ends hangs the engine child, whose heartbeat then ends it.
 */
export class ChatTemplate {
  readonly #template: Template;
  readonly #tokens: { readonly bos: string; readonly eos: string };
  readonly #digitsAt: number;
  readonly #hasToolCalls: boolean;
  /** Whether the template adds a system text of its own that `defaultSystem: 'none'` removes. */
  readonly removesDefaultSystem: boolean;
  readonly source: string;

  constructor(
    source: string,
    tokens: { readonly bos: string; readonly eos: string },
    defaultSystem: 'template' | 'none' = 'template',
  ) {
    this.source = source;
    this.#template = new Template(source);
    this.#tokens = tokens;
    this.#digitsAt = unusedDigits(source + tokens.bos + tokens.eos);
    this.#hasToolCalls = source.includes('tool_calls');
    this.removesDefaultSystem = defaultSystem === 'none' && this.#addsSystem();
  }

  /** The prompt that asks for the next assistant turn. */
  render(messages: readonly Message[], options: { readonly thinking: boolean }): readonly Piece[] {
    const marks = new Marks(this.#digitsAt);
    const turns = messages.map((message, index) => this.#turn(message, index, messages, marks));
    const rendered =
      this.removesDefaultSystem && messages[0]?.role !== 'system'
        ? this.#withoutSystem(turns, options, marks)
        : this.#run(turns, true, options);
    return marks.pieces(rendered);
  }

  #run(turns: readonly Turn[], generate: boolean, options: { readonly thinking: boolean }): string {
    try {
      return this.#template.render({
        messages: turns,
        add_generation_prompt: generate,
        bos_token: this.#tokens.bos,
        eos_token: this.#tokens.eos,
        enable_thinking: options.thinking,
      });
    } catch {
      // The error may quote the template; what it says is of no use to a client.
      throw new ApiError(
        'unsupported_value',
        'The chat template of the model does not accept this conversation: look at the order of the roles.',
        {
          param: 'messages',
        },
      );
    }
  }

  /**
   * The conversation without the template's default system text: rendered with a system message in front, from which exactly
   * that is cut off which the template prints for a conversation of this system message alone.
   */
  #withoutSystem(turns: readonly Turn[], options: { readonly thinking: boolean }, marks: Marks): string {
    const system: Turn = { role: 'system', content: marks.probe() };
    const whole = this.#run([system, ...turns], true, options);
    const head = this.#run([system], false, options);
    const rest = whole.slice(head.length);
    // The system text must stand in what is cut off, and only there: some templates put it into the user's turn.
    if (!whole.startsWith(head) || !head.includes(system.content) || rest.includes(system.content)) throw refusal();
    // The token that begins every prompt stood before the system text; in some models it begins every turn.
    const { bos } = this.#tokens;
    return head.startsWith(bos) && !rest.startsWith(bos) ? bos + rest : rest;
  }

  /**
   * Whether a conversation without a system message gets a system text from the template. A template that puts the system
   * text into the user's turn, or that takes none, has no default that could be cut off, and is left as it is.
   */
  #addsSystem(): boolean {
    const marks = new Marks(this.#digitsAt);
    const user: Turn = { role: 'user', content: marks.mark('user', 'optional') };
    const options = { thinking: false };
    try {
      const plain = this.#run([user], true, options);
      const rest = this.#withoutSystem([user], options, marks);
      return plain !== rest;
    } catch {
      return false;
    }
  }

  #turn(message: Message, index: number, messages: readonly Message[], marks: Marks): Turn {
    const content = textOf(message.content);
    switch (message.role) {
      case 'system':
      case 'user':
        return { role: message.role, content: marks.mark(content, 'required') };
      case 'tool':
        return {
          role: 'tool',
          content: marks.mark(content, 'required'),
          ...(message.toolCallId === undefined ? {} : { tool_call_id: marks.mark(message.toolCallId, 'optional') }),
          ...nameOf(message.toolCallId, messages.slice(0, index), marks),
        };
      case 'assistant':
        return this.#assistantTurn(message, content, marks);
    }
  }

  #assistantTurn(message: Extract<Message, { role: 'assistant' }>, content: string, marks: Marks): Turn {
    const reasoning = message.reasoning.map((part) => part.text).join('\n');
    const thought = reasoning === '' ? {} : { reasoning_content: marks.mark(reasoning, 'optional') };
    if (message.toolCalls.length === 0)
      return { role: 'assistant', content: marks.mark(content, 'required'), ...thought };
    if (!this.#hasToolCalls) {
      // A model without a form of its own sees calls of earlier turns in the commonest one.
      const calls = message.toolCalls.map(
        (call) => `<tool_call>\n${JSON.stringify({ name: call.name, arguments: argumentsOf(call) })}\n</tool_call>`,
      );
      return {
        role: 'assistant',
        content: marks.mark([content, ...calls].filter(Boolean).join('\n'), 'required'),
        ...thought,
      };
    }
    return {
      role: 'assistant',
      // Llama 3 templates print the call alone.
      content: marks.mark(content, 'optional'),
      ...thought,
      tool_calls: message.toolCalls.map((call) => ({
        id: marks.mark(call.id, 'optional'),
        type: 'function',
        function: { name: marks.mark(call.name, 'required'), arguments: marks.markAll(argumentsOf(call)) },
      })),
    };
  }
}

/** What a template sees of a message. Roles are ours, everything else is marked. */
interface Turn {
  readonly role: 'system' | 'user' | 'assistant' | 'tool';
  readonly content: string;
  readonly [field: string]: unknown;
}

function textOf(content: readonly Part[]): string {
  const texts = content.map((part) => {
    if (part.type === 'text') return part.text;
    throw new ApiError('unsupported_feature', 'This model takes text only.', { param: part.at });
  });
  return texts.join('\n');
}

/** Arguments as the object that templates expect, or their text when they are none. */
function argumentsOf(call: ToolCall): unknown {
  try {
    const value: unknown = JSON.parse(call.arguments);
    return typeof value === 'object' && value !== null && !Array.isArray(value) && depthOf(value) <= depthMax
      ? value
      : call.arguments;
  } catch {
    return call.arguments;
  }
}

const depthMax = 64;

function depthOf(value: unknown, depth = 1): number {
  if (typeof value !== 'object' || value === null || depth > depthMax) return depth;
  return Math.max(depth, ...Object.values(value).map((inner) => depthOf(inner, depth + 1)));
}

/** Some templates print the function's name beside its result. */
function nameOf(callId: string | undefined, before: readonly Message[], marks: Marks): { readonly name?: string } {
  const calls = before.flatMap((message) => (message.role === 'assistant' ? message.toolCalls : []));
  const call = callId === undefined ? undefined : calls.findLast((made) => made.id === callId);
  return call === undefined ? {} : { name: marks.mark(call.name, 'optional') };
}

/** The strings of one rendering and what stands for them. */
class Marks {
  readonly #digitsAt: number;
  readonly #nonce: string;
  readonly #texts: string[] = [];
  readonly #indexes = new Map<string, number>();
  readonly #required = new Set<number>();

  constructor(digitsAt: number) {
    this.#digitsAt = digitsAt;
    this.#nonce = [...randomBytes(nonceBytes)].map((byte) => this.#number(byte, 2)).join('');
  }

  /** `required`: the template may not leave the text out. */
  mark(text: string, presence: 'required' | 'optional'): string {
    const core = text.trim();
    if (core === '') return text;
    let index = this.#indexes.get(core);
    if (index === undefined) {
      index = this.#texts.push(core) - 1;
      if (index >= 16 ** indexDigits) throw refusal();
      this.#indexes.set(core, index);
    }
    if (presence === 'required') this.#required.add(index);
    const start = text.length - text.trimStart().length;
    return (
      text.slice(0, start) + lead + this.#nonce + this.#number(index, indexDigits) + text.slice(start + core.length)
    );
  }

  /** A text that no client can have written. */
  probe(): string {
    return this.mark(`probe ${this.#nonce}`, 'optional');
  }

  /** Every string inside a JSON value, names of fields included. */
  markAll(value: unknown): unknown {
    if (typeof value === 'string') return this.mark(value, 'optional');
    if (Array.isArray(value)) return value.map((item) => this.markAll(item));
    if (typeof value !== 'object' || value === null) return value;
    return Object.fromEntries(
      Object.entries(value).map(([name, item]) => [this.mark(name, 'optional'), this.markAll(item)]),
    );
  }

  pieces(rendered: string): readonly Piece[] {
    const marker = new RegExp(`(?:${lead}|(\\\\+)u0001)${this.#nonce}([${this.#digitClass()}]{${indexDigits}})`, 'g');
    const pieces: Piece[] = [];
    const missing = new Set(this.#required);
    let end = 0;
    for (const match of rendered.matchAll(marker)) {
      const index = parseInt(
        [...(match[2] ?? '')].map((digit) => (digit.charCodeAt(0) - this.#digitsAt).toString(16)).join(''),
        16,
      );
      const text = this.#texts[index];
      if (text === undefined) throw refusal();
      pieces.push(
        { text: rendered.slice(end, match.index), client: false },
        { text: escapedLike(match[1] ?? '', text), client: true },
      );
      end = match.index + match[0].length;
      missing.delete(index);
    }
    pieces.push({ text: rendered.slice(end), client: false });
    const fragment = new RegExp(`[${lead}${this.#digitClass()}]|\\\\u0001`);
    if (missing.size > 0 || pieces.some((piece) => !piece.client && fragment.test(piece.text))) throw refusal();
    return pieces.filter((piece) => piece.text !== '');
  }

  #number(value: number, digits: number): string {
    const hex = value.toString(16).padStart(digits, '0');
    return [...hex].map((digit) => String.fromCharCode(this.#digitsAt + parseInt(digit, 16))).join('');
  }

  #digitClass(): string {
    return `${String.fromCharCode(this.#digitsAt)}-${String.fromCharCode(this.#digitsAt + 15)}`;
  }
}

/** Begins a marker: no white space, without case, and `tojson` writes it as `\u0001`. */
const lead = '\u0001';
const nonceBytes = 10;
const indexDigits = 5;

/** Sixteen neighbours of the private use area that the template does not use itself: the digits of the markers. */
function unusedDigits(text: string): number {
  for (let start = 0xe000; start < 0xf8f0; start += 16) {
    if (![...text].some((character) => character.charCodeAt(0) >= start && character.charCodeAt(0) < start + 16))
      return start;
  }
  throw new Error('the chat template uses the whole private use area');
}

/** JSON escapes the escape: level k shows 2^(k-1) backslashes before `u0001`, and the text is escaped k times. */
function escapedLike(backslashes: string, text: string): string {
  const levels = backslashes === '' ? 0 : Math.log2(backslashes.length) + 1;
  if (!Number.isInteger(levels)) throw refusal();
  let escaped = text;
  for (let level = 0; level < levels; level++) escaped = JSON.stringify(escaped).slice(1, -1);
  return escaped;
}

function refusal(): ApiError {
  return new ApiError(
    'unsupported_feature',
    'The chat template of the model leaves out or changes a text of this conversation, so it cannot be answered.',
    {
      param: 'messages',
    },
  );
}
