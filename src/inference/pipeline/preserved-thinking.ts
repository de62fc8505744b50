import { ApiError } from '../../platform/errors.ts';
import type { Message, Prompt, ReasoningText } from '../../generation/request.ts';
import type { ReasoningKeys } from './reasoning-keys.ts';

/**
 * Handles reasoning of earlier turns that a client sends back (specification §4.2.5(7)): drops it or, if it is to be kept, puts it into its
 * message as think-tag text. Engines see reasoning in no other form.
 *
 * An assistant turn that becomes empty (an interrupted one had only reasoning) is left out: no template has an empty turn.
 *
 * A signature is valid only for the account that it was made for. Throws `unsupported_value` 400 if it is not valid and the text would be
 * used; dropped reasoning is not checked (contracts §1.2, "signature").
 */
export function withPreservedThinking(
  prompt: Prompt,
  isKept: boolean,
  reasoningKeys: ReasoningKeys,
  accountId: string,
): Prompt {
  if (prompt.type !== 'messages' || !prompt.messages.some((message) => hasReasoning(message) || saysNothing(message)))
    return prompt;
  const textOf = (reasoning: ReasoningText): string => opened(reasoning, reasoningKeys, accountId);
  const messages = prompt.messages.map((message) =>
    hasReasoning(message) ? inlined(message, isKept ? message.reasoning.map(textOf) : []) : message,
  );
  const saying = messages.filter((message) => !saysNothing(message));
  // A conversation needs a message, even an empty one.
  return { type: 'messages', messages: saying.length === 0 ? messages : saying };
}

/** Whether the turn is empty now that its reasoning was put into the content, or dropped. */
const saysNothing = (message: Message): boolean =>
  message.role === 'assistant' &&
  message.isBeginning !== true &&
  message.toolCalls.length === 0 &&
  message.content.every((part) => part.type === 'text' && part.text === '');

type AssistantMessage = Extract<Message, { readonly role: 'assistant' }>;

const hasReasoning = (message: Message): message is AssistantMessage =>
  message.role === 'assistant' && message.reasoning.length > 0;

function opened({ text, signature }: ReasoningText, reasoningKeys: ReasoningKeys, accountId: string): string {
  if (signature === undefined) return text;
  const found = reasoningKeys.open(signature, text, accountId);
  if (found !== undefined) return found;
  throw new ApiError(
    'unsupported_value',
    'The signature of the reasoning is not valid for this account, or the reasoning was changed. Send it back unchanged, or leave it out.',
    { param: signature.at },
  );
}

function inlined(message: AssistantMessage, thoughts: readonly string[]): Message {
  const thought = thoughts.join('\n').trim();
  if (thought === '') return { ...message, reasoning: [] };
  const [first, ...rest] = message.content;
  const text = `<think>\n${withoutTags(thought)}\n</think>\n\n`;
  const content =
    first?.type === 'text'
      ? [{ type: first.type, text: text + first.text }, ...rest]
      : [{ type: 'text' as const, text }, ...message.content];
  return { ...message, reasoning: [], content };
}

/** A tag inside would end the reasoning early, and the rest would count as content (reliability §3.4). */
const withoutTags = (thought: string): string => thought.replace(/<(\/?think>)/gi, '<\u200b$1');
