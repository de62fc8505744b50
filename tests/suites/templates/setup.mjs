import { chatTemplates } from '../../../scripts/chat-templates.mjs';

export async function setup() {
  return { CHAT_TEMPLATES: chatTemplates() };
}
