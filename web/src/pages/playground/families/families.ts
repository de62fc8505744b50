import { chat } from './chat.ts';
import { completions } from './completions.ts';
import type { FamilyName } from '../search.ts';
import type { Family } from './family.ts';
import { messages } from './messages.ts';
import { responses } from './responses.ts';

export const families: Readonly<Record<FamilyName, Family>> = { chat, responses, messages, completions };
