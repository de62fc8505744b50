import { Template } from '@huggingface/jinja';
import { ApiError } from '../../../platform/errors.ts';
import type { Effort, Message, Part, Tool, ToolCall } from '../../../generation/request.ts';
import { spelled } from '../../output-parsers/format.ts';
import { outputShape, type OutputShape } from '../../output-parsers/shape.ts';
import { endsInThought } from '../../output-parsers/thinking.ts';
import { inlineSystemAsUser } from '../inline-system.ts';
import { plainEffort } from '../reasoning-effort.ts';
import { Marks, refusal, unusedDigits, type Piece } from './client-text-marks.ts';
import { injectTools, writtenResult } from './injected-tools.ts';

/**
 * A model's chat template, rendered so that client text stays distinguishable from the template's (reliability §3.4).
 *
 * The template never sees a client's text. In place of each string it gets a marker between the string's own leading and trailing white
 * space, so that `trim`, `is string`, `length`, concatenation and comparison work as with the text; equal texts have equal markers.
 * Afterwards the markers are replaced by the texts. Client text can never be taken for a marker, because the template sees only a client's
 * white space. A marker passes `tojson` in escaped form and its text is then escaped likewise. A template that takes a text apart (slices,
 * `split` on a marker's inside, changes of case) leaves fragments or loses the marker; such a request is refused rather than rendered from
 * the bare text. Conditions on the content of a text (`'</think>' in content`) are false: clients do not steer the template.
 *
 * Templates come from model files only; a template that never ends hangs the engine child, whose heartbeat then ends it.
 */
export class ChatTemplate {
  readonly #template: Template;
  readonly #tokens: { readonly bos: string; readonly eos: string };
  readonly #digitsAt: number;
  readonly #takesSystem: boolean;
  /** How the model writes reasoning and calls. */
  readonly shape: OutputShape;
  /** Whether the template adds a default system text that `defaultSystem: 'none'` removes. */
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
    this.#takesSystem = this.#shows((marks) => [{ role: 'system', content: marks.probe() }, probeTurn]);
    const shape = outputShape(source, (turns, names) => this.#probe(turns, names), this.#listsTools());
    // Before the next line, calls are printed as they are, so this asks whether the client's stay told from the template's words.
    this.shape = shape;
    this.shape = shape.printsCalls && !this.#keepsCalls() ? { ...shape, printsCalls: false } : shape;
    this.removesDefaultSystem = defaultSystem === 'none' && this.#addsSystem();
  }

  /** Returns the prompt for the next assistant turn. Tools that the template does not render are described in a message. */
  render(messages: readonly Message[], options: RenderOptions): readonly Piece[] {
    const last = messages.at(-1);
    if (last?.role === 'assistant' && last.isBeginning === true)
      return [...this.render(messages.slice(0, -1), options), ...this.#beginningOf(last, options)];
    try {
      return this.#render(messages, options);
    } catch (error) {
      // Mistral's older templates print the system text in the last turn if that is the user's, and drop it after results.
      const folded = last?.role === 'tool' ? foldedSystem(messages) : undefined;
      const accepted = folded ?? inlineSystemAsUser(messages);
      if (accepted === messages) throw error;
      return this.#render(accepted, options);
    }
  }

  /** Returns the words that the answer continues, placed where it begins, after whatever opens the turn. */
  #beginningOf({ content }: Message, { effort }: RenderOptions): readonly Piece[] {
    const { thinking } = this.shape;
    if (thinking.type === 'channels') {
      throw new ApiError('unsupported_feature', 'This model cannot continue an assistant message.', {
        param: 'messages',
      });
    }
    const words: Piece = { text: textOf(content), client: true };
    const isThought = thinking.type === 'marks' && this.startsInThought(effort);
    return isThought ? [{ text: `${thinking.marks.end}\n\n`, client: false }, words] : [words];
  }

  #render(messages: readonly Message[], options: RenderOptions): readonly Piece[] {
    const marks = new Marks(this.#digitsAt);
    const calls: Calls = { names: new Map(), ids: new Map(), valuesLeft: valuesMax };
    const tools = options.tools ?? [];
    if (tools.length > 0 && this.shape.tools === 'unknown') {
      throw new ApiError(
        'unsupported_feature',
        'This model cannot call functions: how it would write calls is not known.',
        { param: 'tools' },
      );
    }
    const isInjected = tools.length > 0 && this.shape.tools === 'described';
    const reported = isInjected ? injectTools(messages, tools, this.shape.calls, this.#takesSystem) : messages;
    const turns = this.#turns(reported, calls, marks);
    if (tools.length > 0 && !isInjected) return marks.pieces(this.#withTools(turns, tools, options, marks));
    return marks.pieces(
      this.removesDefaultSystem && reported[0]?.role !== 'system'
        ? this.#withoutSystem(turns, options, marks)
        : this.#run(turns, true, options),
    );
  }

  #withTools(turns: readonly Turn[], tools: readonly Tool[], options: RenderOptions, marks: Marks): string {
    try {
      return this.#run(turns, true, options, toolTurns(tools, marks));
    } catch (error) {
      if (!(error instanceof ApiError) || error.param !== 'messages') throw error;
      // Some templates process the description of each parameter, and fail where there is none.
      return this.#run(turns, true, options, toolTurns(tools.map(described), marks));
    }
  }

  /** Returns whether the prompt ends inside reasoning that the template has opened. */
  startsInThought(effort: Effort): boolean {
    const { thinking } = this.shape;
    if (thinking.type !== 'marks') return false;
    try {
      return endsInThought(this.#run([probeTurn], true, { effort }), thinking.marks);
    } catch {
      return false;
    }
  }

  #run(
    turns: readonly Turn[],
    generate: boolean,
    { effort }: Pick<RenderOptions, 'effort'>,
    tools?: readonly unknown[],
  ): string {
    const thinking = effort !== 'none';
    try {
      return this.#template.render({
        messages: turns,
        add_generation_prompt: generate,
        bos_token: this.#tokens.bos,
        eos_token: this.#tokens.eos,
        // The switch has these names in the templates of Qwen, DeepSeek and Harmony.
        enable_thinking: thinking,
        thinking,
        // Harmony knows three tiers, and no switch.
        reasoning_effort: thinking ? plainEffort(effort) : 'low',
        ...(tools === undefined ? {} : { tools }),
      });
    } catch {
      // The error may quote the template; its text is of no use to a client.
      throw new ApiError(
        'unsupported_value',
        'The chat template of the model does not accept this conversation: check the order of the roles.',
        {
          param: 'messages',
        },
      );
    }
  }

  /**
   * Returns the conversation without the template's default system text: rendered with a system message in front, minus exactly the prefix
   * that the template prints for a conversation of this system message alone.
   */
  #withoutSystem(turns: readonly Turn[], options: Pick<RenderOptions, 'effort'>, marks: Marks): string {
    const system: Turn = { role: 'system', content: marks.probe() };
    const whole = this.#run([system, ...turns], true, options);
    const head = this.#run([system], false, options);
    const rest = whole.slice(head.length);
    // The system text must be in the removed prefix, and only there: some templates put it into the user's turn.
    if (!whole.startsWith(head) || !head.includes(system.content) || rest.includes(system.content)) throw refusal();
    // The token that begins every prompt preceded the system text; in some models it begins every turn.
    const { bos } = this.#tokens;
    return head.startsWith(bos) && !rest.startsWith(bos) ? bos + rest : rest;
  }

  /**
   * Returns whether the template adds a system text to a conversation without one. A template that puts the system text into the user's
   * turn, or that accepts no system text, has no removable default and is left as it is.
   */
  #addsSystem(): boolean {
    const marks = new Marks(this.#digitsAt);
    const user: Turn = { role: 'user', content: marks.mark('user', 'optional') };
    const options = { effort: 'none' } as const;
    try {
      const plain = this.#run([user], true, options);
      const rest = this.#withoutSystem([user], options, marks);
      return plain !== rest;
    } catch {
      return false;
    }
  }

  /** Returns whether a probe in these turns or tools appears in the prompt. */
  #shows(turnsOf: (marks: Marks) => readonly Turn[], toolsOf?: (marks: Marks) => readonly unknown[]): boolean {
    const marks = new Marks(this.#digitsAt);
    const turns = turnsOf(marks);
    try {
      const rendered = this.#run(turns, true, { effort: 'none' }, toolsOf?.(marks));
      return marks.pieces(rendered).some((piece) => piece.client);
    } catch {
      return false;
    }
  }

  #probe(turns: readonly Turn[], names: readonly string[]): string | undefined {
    const properties = { akey: { type: 'string', description: '' }, bkey: { type: 'string', description: '' } };
    const tools = names.map((name) => functionOf(name, 'It is never called.', { type: 'object', properties }));
    try {
      return this.#run(turns, false, { effort: 'medium' }, tools);
    } catch {
      return undefined;
    }
  }

  /** `undefined`: the template cannot be rendered with tools. */
  #listsTools(): boolean | undefined {
    const marks = new Marks(this.#digitsAt);
    const tools = [functionOf(marks.probe(), 'It is never called.', { type: 'object', properties: {} })];
    try {
      return marks.pieces(this.#run([probeTurn], true, { effort: 'none' }, tools)).some((piece) => piece.client);
    } catch {
      return this.#probe([probeTurn], ['probefirst']) === undefined ? undefined : false;
    }
  }

  /** Whether earlier calls come out of the template as they went in. */
  #keepsCalls(): boolean {
    const call = { id: 'call_1', name: 'probe', arguments: '{"a":"b"}' };
    const called: Message = { role: 'assistant', content: [], reasoning: [], toolCalls: [call] };
    try {
      const marks = new Marks(this.#digitsAt);
      const calls: Calls = { names: new Map(), ids: new Map(), valuesLeft: valuesMax };
      const turns = this.#turns([{ role: 'user', content: [{ type: 'text', text: 'Hello' }] }, called], calls, marks);
      const properties = { a: { type: 'string', description: '' } };
      const tools = [functionOf(call.name, 'It is never called.', { type: 'object', properties })];
      const rendered = this.#run(turns, false, { effort: 'none' }, this.shape.tools === 'own' ? tools : undefined);
      return marks.pieces(rendered).some(({ client, text }) => client && text === 'b');
    } catch {
      return false;
    }
  }

  #turns(messages: readonly Message[], calls: Calls, marks: Marks): readonly Turn[] {
    const turns: Turn[] = [];
    let results: string[] = [];
    for (const [index, message] of messages.entries()) {
      if (message.role !== 'tool' || this.shape.printsCalls) {
        turns.push(this.#turn(message, calls, marks));
        continue;
      }
      // A model without a result format reads results in a user turn; those of one turn share it.
      results.push(writtenResult(textOf(message.content)));
      if (messages[index + 1]?.role === 'tool') continue;
      turns.push({ role: 'user', content: marks.mark(results.join('\n'), 'required') });
      results = [];
    }
    return turns;
  }

  #turn(message: Message, calls: Calls, marks: Marks): Turn {
    const content = textOf(message.content);
    switch (message.role) {
      case 'system':
      case 'user':
        return { role: message.role, content: marks.mark(content, 'required') };
      case 'tool':
        return {
          role: 'tool',
          content: marks.mark(content, 'required'),
          ...(message.toolCallId === undefined ? {} : { tool_call_id: this.#idOf(message.toolCallId, calls, marks) }),
          ...nameOf(message.toolCallId, calls.names, marks),
        };
      case 'assistant':
        for (const call of message.toolCalls) calls.names.set(call.id, call.name);
        return this.#assistantTurn(message, content, calls, marks);
    }
  }

  #assistantTurn(message: Extract<Message, { role: 'assistant' }>, content: string, calls: Calls, marks: Marks): Turn {
    const reasoning = message.reasoning.map((part) => part.text).join('\n');
    const thought = reasoning === '' ? {} : { [this.shape.reasoningField]: marks.mark(reasoning, 'optional') };
    if (message.toolCalls.length === 0)
      return { role: 'assistant', content: marks.mark(content, 'required'), ...thought };
    if (!this.shape.printsCalls) {
      // A model whose template prints no calls sees earlier ones as it writes them, or as its prompt describes.
      const written = spelled(
        this.shape.calls,
        message.toolCalls.map((call) => ({ id: call.id, name: call.name, arguments: argumentsOf(call, calls) })),
      );
      return {
        role: 'assistant',
        content: marks.mark([content, written].filter(Boolean).join('\n'), 'required'),
        ...thought,
      };
    }
    return {
      role: 'assistant',
      // Llama 3 templates print only the call.
      content: marks.mark(content, 'optional'),
      ...thought,
      tool_calls: message.toolCalls.map((call) => ({
        id: this.#idOf(call.id, calls, marks),
        type: 'function',
        function: { name: marks.mark(call.name, 'required'), arguments: marks.markAll(argumentsOf(call, calls)) },
      })),
    };
  }

  #idOf(id: string, calls: Calls, marks: Marks): string {
    const kind = this.shape.calls.ids;
    if (kind === 'any') return marks.mark(id, 'optional');
    const known = calls.ids.get(id) ?? calls.ids.size;
    calls.ids.set(id, known);
    if (kind === 'nine') return String(known + 1).padStart(9, '0');
    return `functions.${marks.mark(calls.names.get(id) ?? '', 'optional')}:${known}`;
  }
}

export interface RenderOptions {
  readonly effort: Effort;
  /** The tools that the model may call. */
  readonly tools?: readonly Tool[];
}

/** Returns the conversation with its system text at the start of the user's first turn, if that is possible. */
function foldedSystem([first, second, ...rest]: readonly Message[]): readonly Message[] | undefined {
  if (first?.role !== 'system' || second?.role !== 'user') return undefined;
  return [{ role: 'user', content: [...first.content, { type: 'text', text: '' }, ...second.content] }, ...rest];
}

/** Returns tools in the form of the OpenAI API, which templates print. Client strings are marked; JSON Schema keywords are not. */
function toolTurns(tools: readonly Tool[], marks: Marks): readonly unknown[] {
  let valuesLeft = toolValuesMax;
  return tools.map(({ name, description, parameters }, index) => {
    const schema = parameters ?? { type: 'object', properties: {} };
    valuesLeft -= countValues(schema, valuesLeft);
    if (valuesLeft < 0) {
      throw new ApiError('unsupported_value', `The schemas of all tools may have ${toolValuesMax} values, 64 deep.`, {
        param: `tools[${index}].function.parameters`,
      });
    }
    return functionOf(
      marks.mark(name, 'required'),
      marks.mark(description ?? '', 'optional'),
      marks.markAll(schema, schemaWords),
    );
  });
}

function described(tool: Tool): Tool {
  const schema = tool.parameters;
  const properties = isRecord(schema) && isRecord(schema['properties']) ? schema['properties'] : {};
  const full = Object.entries(properties).map(([name, property]) => [
    name,
    isRecord(property) ? { description: '', ...property } : property,
  ]);
  return { ...tool, parameters: isRecord(schema) ? { ...schema, properties: Object.fromEntries(full) } : schema };
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function functionOf(name: string, description: string, parameters: unknown): unknown {
  return { type: 'function', function: { name, description, parameters } };
}

/** Words that templates look up in a schema or compare its types with: the same for every client, so they need no marker. */
const schemaWords: ReadonlySet<string> = new Set([
  ...[
    'type',
    'properties',
    'required',
    'description',
    'title',
    'enum',
    'const',
    'default',
    'items',
    'nullable',
    'format',
  ],
  ...['anyOf', 'oneOf', 'allOf', 'additionalProperties', '$defs', 'definitions', '$ref', '$schema', 'examples'],
  ...['minimum', 'maximum', 'minLength', 'maxLength', 'minItems', 'maxItems', 'pattern'],
  ...['object', 'array', 'string', 'number', 'integer', 'boolean', 'null'],
]);

const probeTurn: Turn = { role: 'user', content: 'Hello' };

/** A message as a template sees it. Only roles are unmarked: the service sets them. */
interface Turn {
  readonly role: 'system' | 'user' | 'assistant' | 'tool';
  readonly content: string;
  readonly [field: string]: unknown;
}

function textOf(content: readonly Part[]): string {
  const texts = content.map((part) => {
    if (part.type === 'text') return part.text;
    throw new ApiError('unsupported_feature', 'This model accepts only text.', { param: part.at });
  });
  return texts.join('\n');
}

/** State about calls while the turns are being built. */
interface Calls {
  /** Names of the functions called so far, by call id. */
  readonly names: Map<string, string>;
  /** Numbers of calls by id, for templates that take ids of one form only. */
  readonly ids: Map<string, number>;
  /** How many more values inside arguments the template may get as objects. */
  valuesLeft: number;
}

/** Returns the arguments as the object that templates expect, or as text if they are not an object or are too large for a template. */
function argumentsOf(call: ToolCall, calls: Calls): unknown {
  try {
    const value: unknown = JSON.parse(call.arguments);
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return call.arguments;
    const values = countValues(value, calls.valuesLeft);
    if (values > calls.valuesLeft) return call.arguments;
    calls.valuesLeft -= values;
    return value;
  } catch {
    return call.arguments;
  }
}

const depthMax = 64;
/** A template takes about 20 µs per value: an object of 100,000 fields took one template 16 s on a busy machine. */
const valuesMax = 4096;
const toolValuesMax = 8192;

/** Counts values, but no further than `most`; nesting beyond the bound counts as infinite. */
function countValues(value: unknown, most: number, depth = 1): number {
  if (typeof value !== 'object' || value === null) return 1;
  if (depth > depthMax) return Infinity;
  let count = 1;
  for (const inner of Object.values(value)) {
    count += countValues(inner, most, depth + 1);
    if (count > most) return Infinity;
  }
  return count;
}

/** Returns the function's name, which some templates print beside its result. */
function nameOf(
  callId: string | undefined,
  names: ReadonlyMap<string, string>,
  marks: Marks,
): { readonly name?: string } {
  const name = callId === undefined ? undefined : names.get(callId);
  return name === undefined ? {} : { name: marks.mark(name, 'optional') };
}
