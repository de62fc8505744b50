import { ApiError } from '../../../platform/errors.ts';
import type { EngineRequest, Message, Part, Prompt, Tool } from '../../../generation/request.ts';

/**
 * How client text that spells a special token of the model is handled. Servers read `<|im_end|>` in a message as the token itself, so a
 * text can pretend to be another turn (reliability §3.4).
 */
export interface SpecialTokens {
  /** `pass`: leave it; `refuse`: 400; `break`: insert a zero-width character, so that it is only text. */
  readonly mode: 'pass' | 'refuse' | 'break';
  /** Besides `<|…|>` and `<｜…｜>`: other special tokens of this model, such as `[INST]`. */
  readonly texts: readonly string[];
}

/** Returns the request without special tokens in any client text. Throws `unsupported_value` 400. */
export function guarded(request: EngineRequest, { mode, texts }: SpecialTokens): EngineRequest {
  if (mode === 'pass') return request;
  const guard = new Guard(mode, texts);
  return { ...request, prompt: guardPrompt(request.prompt, guard), tools: request.tools.map(guardTool(guard)) };
}

const zeroWidthSpace = '\u200b';
/** Maximum rounds of checking a text: breaking one token may spell another of the list. */
const roundsMax = 8;

class Guard {
  readonly #isBreaking: boolean;
  readonly #pattern: RegExp;

  constructor(mode: 'refuse' | 'break', texts: readonly string[]) {
    this.#isBreaking = mode === 'break';
    const listed = texts.filter((text) => text !== '').map((text) => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'));
    this.#pattern = new RegExp(['<\\|[^|<>\\s]{1,64}\\|>', '<｜[^｜<>\\s]{1,64}｜>', ...listed].join('|'), 'u');
  }

  /** Guards a text that the model only reads. */
  text(text: string, param: string): string {
    let found = this.#pattern.exec(text);
    if (found === null) return text;
    if (!this.#isBreaking) throw refused(param);
    const all = new RegExp(this.#pattern, 'gu');
    for (let round = 0; found !== null; round++) {
      if (round === roundsMax) throw refused(param);
      text = text.replace(all, breakToken);
      found = this.#pattern.exec(text);
    }
    return text;
  }

  /** Guards a name, which must come back unchanged. */
  name(name: string, param: string): string {
    if (this.#pattern.test(name)) throw refused(param);
    return name;
  }

  /** Guards a schema: descriptions are text, everything else is names. */
  schema(value: unknown, param: string, isText = false): unknown {
    if (typeof value === 'string') return isText ? this.text(value, param) : this.name(value, param);
    if (typeof value !== 'object' || value === null) return value;
    if (Array.isArray(value)) return value.map((item) => this.schema(item, param));
    return Object.fromEntries(
      Object.entries(value).map(([key, item]) => [
        this.name(key, param),
        this.schema(item, param, key === 'description' || key === 'title'),
      ]),
    );
  }
}

/** Breaks a token after its first character, so that no part of it is a token either. */
function breakToken(token: string): string {
  const [first = ''] = token;
  return first + zeroWidthSpace + token.slice(first.length);
}

const refused = (param: string): ApiError =>
  new ApiError('unsupported_value', 'The text contains a special token of the model, which is not accepted.', {
    param,
  });

function guardPrompt(prompt: Prompt, guard: Guard): Prompt {
  switch (prompt.type) {
    case 'messages':
      return { type: 'messages', messages: prompt.messages.map((message, i) => guardMessage(message, i, guard)) };
    case 'texts':
      return { type: 'texts', prompts: prompt.prompts.map((text) => guard.text(text, 'prompt')) };
    // A client that writes token ids uses special ones on purpose.
    case 'token-ids':
      return prompt;
  }
}

function guardMessage(message: Message, index: number, guard: Guard): Message {
  const at = `messages[${index}]`;
  const content = joined(message.content).map((part) =>
    part.type === 'text' ? { type: part.type, text: guard.text(part.text, `${at}.content`) } : part,
  );
  switch (message.role) {
    case 'system':
    case 'user':
      return { ...message, content };
    case 'tool':
      return { ...message, content, toolCallId: guard.name(message.toolCallId ?? '', `${at}.tool_call_id`) };
    case 'assistant':
      return {
        ...message,
        content,
        reasoning: message.reasoning.map((part) => ({
          ...part,
          text: guard.text(part.text, `${at}.reasoning_content`),
        })),
        toolCalls: message.toolCalls.map((call, i) => ({
          id: guard.name(call.id, `${at}.tool_calls[${i}].id`),
          name: guard.name(call.name, `${at}.tool_calls[${i}].function.name`),
          arguments: guard.text(call.arguments, `${at}.tool_calls[${i}].function.arguments`),
        })),
      };
  }
}

/** Joins adjacent texts, because templates put them side by side, where two halves would form a token. */
function joined(parts: readonly Part[]): readonly Part[] {
  const all: Part[] = [];
  for (const part of parts) {
    const last = all.at(-1);
    if (part.type === 'text' && last?.type === 'text')
      all[all.length - 1] = { type: 'text', text: `${last.text}\n${part.text}` };
    else all.push(part);
  }
  return all;
}

const guardTool =
  (guard: Guard) =>
  (tool: Tool, index: number): Tool => {
    const at = `tools[${index}].function`;
    return {
      ...tool,
      name: guard.name(tool.name, `${at}.name`),
      description: tool.description === undefined ? undefined : guard.text(tool.description, `${at}.description`),
      parameters: guard.schema(tool.parameters, `${at}.parameters`),
    };
  };
