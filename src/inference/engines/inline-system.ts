import type { Message } from '../../generation/request.ts';

/**
 * Turns system messages after the first into user text, for templates that accept a system message only at the beginning. They stay in
 * place: moved to the front they would change the beginning of the prompt with every turn (contracts §0.1). Returns the same list if there
 * are none.
 */
export function inlineSystemAsUser(messages: readonly Message[]): readonly Message[] {
  if (!messages.some(({ role }, index) => role === 'system' && index > 0)) return messages;
  const reported: Message[] = [];
  for (const [index, message] of messages.entries()) {
    const turn: Message = message.role === 'system' && index > 0 ? { ...message, role: 'user' } : message;
    const last = reported.at(-1);
    // Such templates require alternating turns.
    if (last?.role === 'user' && turn.role === 'user')
      reported[reported.length - 1] = { ...last, content: [...last.content, ...turn.content] };
    else reported.push(turn);
  }
  return reported;
}
