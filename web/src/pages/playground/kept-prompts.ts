/**
 * What a person has saved in the playground by name: instructions, messages and settings. It is in this browser alone, under the name of
 * its owner, whom nobody else who signs in here is. Files and images are left out. What is read back is checked as if it came from outside.
 */
import { searchOf } from '../../app/filters.ts';
import { textOf } from './conversation.ts';
import type { Turn } from './conversation.ts';
import { playgroundSearch } from './search.ts';
import type { Search } from './search.ts';
import type { Written } from './settings.ts';

export interface KeptMessage {
  readonly role: 'user' | 'assistant';
  readonly text: string;
}

export interface KeptPrompt extends Written {
  readonly name: string;
  readonly search: Search;
  /** The message that was not sent yet. */
  readonly draft: string;
  readonly messages: readonly KeptMessage[];
}

export const promptsMax = 50;
export const promptCharactersMax = 50_000;
export const promptNameMax = 80;
const allCharactersMax = 1_000_000;

export type Kept = 'kept' | 'tooMany' | 'tooLong' | 'noRoom' | 'nameTaken';
export type PromptStorage = Pick<Storage, 'getItem' | 'setItem'>;

const nameOf = (owner: string): string => `playground prompts ${owner}`;

/** The newest first. */
export function keptPrompts(owner: string, storage: PromptStorage = localStorage): readonly KeptPrompt[] {
  try {
    const parsed: unknown = JSON.parse(storage.getItem(nameOf(owner)) ?? '[]');
    return Array.isArray(parsed) ? (parsed as unknown[]).slice(0, promptsMax).flatMap(promptOf) : [];
  } catch {
    return [];
  }
}

/** In place of the one of this name, if there is one. */
export function keepPrompt(owner: string, prompt: KeptPrompt, storage: PromptStorage = localStorage): Kept {
  if (JSON.stringify(prompt).length > promptCharactersMax) return 'tooLong';
  const others = keptPrompts(owner, storage).filter(({ name }) => name !== prompt.name);
  return others.length >= promptsMax ? 'tooMany' : write(owner, [prompt, ...others], storage);
}

export function renamePrompt(owner: string, from: string, to: string, storage: PromptStorage = localStorage): Kept {
  const all = keptPrompts(owner, storage);
  if (from !== to && all.some(({ name }) => name === to)) return 'nameTaken';
  const renamed = all.map((one) => (one.name === from ? { ...one, name: to } : one));
  return write(owner, renamed, storage);
}

export function deletePrompt(owner: string, name: string, storage: PromptStorage = localStorage): void {
  write(
    owner,
    keptPrompts(owner, storage).filter((one) => one.name !== name),
    storage,
  );
}

function write(owner: string, prompts: readonly KeptPrompt[], storage: PromptStorage): Kept {
  const text = JSON.stringify(prompts);
  if (text.length > allCharactersMax) return 'noRoom';
  try {
    storage.setItem(nameOf(owner), text);
    return 'kept';
  } catch {
    // What was there is still there.
    return 'noRoom';
  }
}

/** The messages of a conversation; what has no text is left out. */
export const messagesOf = (turns: readonly Turn[]): readonly KeptMessage[] =>
  turns
    .map((turn): KeptMessage =>
      turn.kind === 'user' ? { role: 'user', text: turn.text } : { role: 'assistant', text: textOf(turn) },
    )
    .filter(({ text }) => text !== '');

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null;
const textIn = (value: unknown): string => (typeof value === 'string' ? value : '');

function promptOf(value: unknown): readonly KeptPrompt[] {
  if (!isObject(value)) return [];
  const name = promptName(textIn(value['name']));
  if (name === '') return [];
  const { search, messages } = value;
  return [
    {
      name,
      search: searchOf(playgroundSearch)(isObject(search) ? search : {}),
      system: textIn(value['system']),
      tools: textIn(value['tools']),
      schema: textIn(value['schema']),
      draft: textIn(value['draft']),
      messages: (Array.isArray(messages) ? (messages as unknown[]) : []).flatMap((one): readonly KeptMessage[] =>
        isObject(one) && typeof one['text'] === 'string' && one['text'] !== ''
          ? [{ role: one['role'] === 'assistant' ? 'assistant' : 'user', text: one['text'] }]
          : [],
      ),
    },
  ];
}

/** As it is kept; empty: it is none. */
export const promptName = (written: string): string => written.trim().slice(0, promptNameMax).trim();
