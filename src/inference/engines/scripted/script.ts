import type { ErrorCode } from '../../../platform/errors.ts';
import type { FinishReason } from '../../../generation/event.ts';
import type { EngineRequest, Message, ReasoningForm } from '../../../generation/request.ts';
import type { RawUsage } from '../usage-tally.ts';
import { idOf } from './vocabulary.ts';

/** What a request must look like for a rule to apply; `undefined` fields match anything. */
export interface ScriptCondition {
  /** Name of the engine, so that one list of rules can serve several models. */
  readonly model?: string | undefined;
  /** A part of the text of the last message, or of a prompt without messages. */
  readonly lastText?: string | undefined;
  readonly lastRole?: Message['role'] | undefined;
  /** Whether tools are offered that the model may call. */
  readonly tools?: boolean | undefined;
  /** How many assistant messages the conversation has. */
  readonly turn?: number | undefined;
}

export type ScriptStep =
  | { readonly type: 'reasoning' | 'text'; readonly pieces: readonly string[] }
  | { readonly type: 'tool-call'; readonly name: string; readonly arguments: readonly string[] };

/** A failure after this many tokens of every choice. */
export interface ScriptFault {
  readonly afterTokens: number;
  /** The backend ends without a finish, falls silent, or fails with a code. */
  readonly type: 'cut' | 'hang' | 'error';
  readonly code: ErrorCode;
}

/** One rule: when it applies, and what it then plays. One piece is one token, the name of a tool call is another. */
export interface ScriptRule {
  readonly when: ScriptCondition | undefined;
  readonly steps: readonly ScriptStep[];
  /** How often the steps are played in a row. */
  readonly repeat: number;
  readonly firstTokenMs: number;
  /** Milliseconds between tokens; 0 plays as fast as the reader accepts. */
  readonly paceMs: number;
  readonly fault: ScriptFault | undefined;
  /** `'none'`: the backend reports nothing, so the engine counts. Figures are reported unchanged, and then clamped. */
  readonly usage: RawUsage | 'none' | undefined;
  /** Length of the prompt; `undefined`: counted. */
  readonly promptTokens: number | undefined;
}

/** A piece of an answer, as carried by the events of one token. */
export type ScriptToken =
  | { readonly type: 'reasoning' | 'text'; readonly text: string }
  | { readonly type: 'tool-call'; readonly call: number; readonly name: string }
  | { readonly type: 'tool-arguments'; readonly call: number; readonly text: string };

export interface ScriptPlan {
  readonly tokens: readonly ScriptToken[];
  readonly reason: FinishReason;
  readonly stopSequence: string | undefined;
  readonly stopTokenId: number | undefined;
  readonly cause: 'max-tokens' | 'window' | undefined;
}

/** Returns the first rule whose conditions hold. */
export function matchingRule(
  rules: readonly ScriptRule[],
  model: string,
  request: EngineRequest,
): ScriptRule | undefined {
  return rules.find((rule) => rule.when === undefined || holds(rule.when, model, request));
}

/** Returns all tokens of a rule, once per repetition. */
export function tokensOf(rule: ScriptRule): readonly ScriptToken[] {
  const tokens: ScriptToken[] = [];
  let call = 0;
  for (let round = 0; round < rule.repeat; round++) {
    for (const step of rule.steps) {
      if (step.type === 'tool-call') {
        tokens.push({ type: 'tool-call', call, name: step.name });
        for (const text of step.arguments) tokens.push({ type: 'tool-arguments', call, text });
        call++;
      } else for (const text of step.pieces) tokens.push({ type: step.type, text });
    }
  }
  return tokens;
}

/** Returns the tokens without reasoning; the same list if there is none. */
export function withoutReasoning(tokens: readonly ScriptToken[]): readonly ScriptToken[] {
  return tokens.some(({ type }) => type === 'reasoning') ? tokens.filter(({ type }) => type !== 'reasoning') : tokens;
}

/**
 * Returns the tokens in the request's form of reasoning (§4.2.5(1) and (4)): separate, between think tags in the answer, or omitted. Where
 * reasoning is not reported, its tokens count as the answer's.
 */
export function formed(tokens: readonly ScriptToken[], form: ReasoningForm): readonly ScriptToken[] {
  if (form === 'separate') return tokens;
  return tokens.map((token, index): ScriptToken => {
    if (token.type !== 'reasoning') return token;
    if (form === 'hidden') return { type: 'text', text: '' };
    const next = tokens[index + 1];
    const opening = tokens[index - 1]?.type === 'reasoning' ? '' : '<think>\n';
    const closing = next === undefined || next.type === 'reasoning' ? '' : '\n</think>\n\n';
    return { type: 'text', text: opening + token.text + closing };
  });
}

/** Returns one choice's tokens after applying stop strings, `max_tokens` and the window. */
export function planOf(tokens: readonly ScriptToken[], request: EngineRequest, windowTokens: number): ScriptPlan {
  const limit = Math.min(request.maxTokens, windowTokens);
  const stopped =
    request.stop.length === 0 ? undefined : stopAt(tokens, request.stop, limit, request.tokens?.includesStop);
  const named = stopTokenAt(stopped?.tokens ?? tokens.slice(0, limit), request);
  if (named !== undefined) return named;
  if (stopped !== undefined) return { ...stopped, reason: 'stop', stopTokenId: undefined, cause: undefined };
  if (tokens.length > limit) {
    const cause = request.maxTokens <= windowTokens ? 'max-tokens' : 'window';
    return { tokens: tokens.slice(0, limit), reason: 'length', stopSequence: undefined, stopTokenId: undefined, cause };
  }
  const reason = tokens.some((token) => token.type === 'tool-call') ? 'tool-calls' : 'stop';
  return { tokens, reason, stopSequence: undefined, stopTokenId: undefined, cause: undefined };
}

/** Returns the tokens up to the first one that the client named as a stop token. */
function stopTokenAt(tokens: readonly ScriptToken[], { tokens: controls }: EngineRequest): ScriptPlan | undefined {
  if (controls === undefined || controls.stopIds.length === 0) return undefined;
  const at = tokens.findIndex((token) => token.type === 'text' && controls.stopIds.includes(idOf(token.text)));
  const found = tokens[at];
  if (found?.type !== 'text') return undefined;
  return {
    tokens: tokens.slice(0, controls.includesStop ? at + 1 : at),
    reason: 'stop',
    stopSequence: undefined,
    stopTokenId: idOf(found.text),
    cause: undefined,
  };
}

/**
 * Returns a prompt's token count if the rule has none: 4 tokens per message and one per 4 bytes of text, rounded up; tool definitions by
 * the bytes of their JSON; token ids by their number; an image is 256.
 */
export function promptTokensOf(request: EngineRequest): number {
  const { prompt, tools } = request;
  switch (prompt.type) {
    case 'token-ids':
      return prompt.prompts.reduce((sum, ids) => sum + ids.length, 0);
    case 'texts':
      return prompt.prompts.reduce((sum, text) => sum + textTokens(queryOf(request) + text), 0);
    case 'messages':
      return prompt.messages.reduce(
        (sum, message) => sum + messageTokens(message),
        tools.length === 0 ? 0 : textTokens(JSON.stringify(tools)),
      );
  }
}

/** Returns the length of the longest prompt: each prompt has the window to itself. */
export function longestPromptTokens(request: EngineRequest): number {
  const { prompt } = request;
  switch (prompt.type) {
    case 'token-ids':
      return prompt.prompts.reduce((most, ids) => Math.max(most, ids.length), 0);
    case 'texts':
      return prompt.prompts.reduce((most, text) => Math.max(most, textTokens(queryOf(request) + text)), 0);
    case 'messages':
      return promptTokensOf(request);
  }
}

/** A document is read together with the query. */
const queryOf = ({ task }: EngineRequest): string => (task?.type === 'rank' ? task.query : '');

/** Splits a text into words, each with the blanks before it; joined they are the text. */
export function words(text: string): readonly string[] {
  return text.match(/\s*\S+|\s+$/g) ?? [];
}

function holds(when: ScriptCondition, model: string, request: EngineRequest): boolean {
  if (when.model !== undefined && when.model !== model) return false;
  if (when.tools !== undefined && when.tools !== (request.tools.length > 0 && request.toolChoice.type !== 'none')) {
    return false;
  }
  const messages = request.prompt.type === 'messages' ? request.prompt.messages : [];
  if (when.lastRole !== undefined && messages.at(-1)?.role !== when.lastRole) return false;
  if (when.turn !== undefined && messages.filter((message) => message.role === 'assistant').length !== when.turn) {
    return false;
  }
  return when.lastText === undefined || lastText(request).includes(when.lastText);
}

function lastText(request: EngineRequest): string {
  const { prompt } = request;
  switch (prompt.type) {
    case 'token-ids':
      return '';
    case 'texts':
      return prompt.prompts.at(-1) ?? '';
    case 'messages': {
      const parts = prompt.messages.at(-1)?.content ?? [];
      return parts.map((part) => (part.type === 'text' ? part.text : '')).join('');
    }
  }
}

/** Returns the tokens up to the first stop string in the visible text, if it comes within the token limit. */
function stopAt(
  tokens: readonly ScriptToken[],
  stops: readonly string[],
  limit: number,
  isIncluded = false,
): Pick<ScriptPlan, 'tokens' | 'stopSequence'> | undefined {
  const longest = Math.max(...stops.map((stop) => stop.length));
  // A match can begin in an earlier token, so the end of the previous text is kept.
  let tail = '';
  for (let i = 0; i < Math.min(tokens.length, limit); i++) {
    const token = tokens[i]!;
    if (token.type !== 'text') continue;
    const text = tail + token.text;
    const hit = stops
      .map((stop) => ({ stop, at: stop === '' ? -1 : text.indexOf(stop) }))
      .filter(({ at }) => at !== -1)
      .sort((a, b) => a.at - b.at)[0];
    if (hit !== undefined) {
      const end = hit.at + (isIncluded ? hit.stop.length : 0);
      return { tokens: cutText(tokens.slice(0, i + 1), text.length - end), stopSequence: hit.stop };
    }
    tail = longest > 1 ? text.slice(1 - longest) : '';
  }
  return undefined;
}

/** Returns the same tokens without the last `characters` of their text; they stay tokens, because they were generated. */
function cutText(tokens: ScriptToken[], characters: number): readonly ScriptToken[] {
  for (let i = tokens.length - 1; characters > 0 && i >= 0; i--) {
    const token = tokens[i]!;
    if (token.type !== 'text') continue;
    const kept = Math.max(0, token.text.length - characters);
    characters -= token.text.length - kept;
    tokens[i] = { ...token, text: token.text.slice(0, kept) };
  }
  return tokens;
}

/** For an image of any size. */
export const imageTokens = 256;

function messageTokens(message: Message): number {
  let tokens = 4;
  for (const part of message.content) {
    tokens +=
      part.type === 'text' ? textTokens(part.text) : part.type === 'file' ? textTokens(part.data ?? '') : imageTokens;
  }
  if (message.role !== 'assistant') return tokens;
  for (const reasoning of message.reasoning) tokens += textTokens(reasoning.text);
  for (const call of message.toolCalls) tokens += textTokens(call.name) + textTokens(call.arguments);
  return tokens;
}

function textTokens(text: string): number {
  return Math.ceil(Buffer.byteLength(text) / 4);
}
