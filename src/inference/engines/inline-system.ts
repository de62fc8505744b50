import type { Message } from '../../generation/request.ts';

/**
 * The conversation with its system messages behind the first as words of the user, for templates that take a system message in
 * front only. In their place: moved to the front they would change the head of the prompt with every turn (contracts §0.1). The
 * same list when there are none.
 */
export function inlineSystemAsUser(messages: readonly Message[]): readonly Message[] {
  if (!messages.some(({ role }, index) => role === 'system' && index > 0)) return messages;
  const reported: Message[] = [];
  for (const [index, message] of messages.entries()) {
    const turn: Message = message.role === 'system' && index > 0 ? { ...message, role: 'user' } : message;
    const last = reported.at(-1);
    // Such templates want turns to alternate.
    if (last?.role === 'user' && turn.role === 'user')
      reported[reported.length - 1] = { ...last, content: [...last.content, ...turn.content] };
    else reported.push(turn);
  }
  return reported;
}
