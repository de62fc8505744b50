/**
 * Texts in three languages, without a library: a catalogue is an object of messages, typed by the English one, so that a text that
 * is missing in a language does not compile. A message is a text with `{placeholders}`, or one text for each plural form of `{n}`.
 *
 *   export default { title: 'Keys', used: { one: '{n} request', other: '{n} requests' } } as const satisfies Catalogue;
 *
 * A catalogue belongs to an area (`pages/<area>/messages/`) and is loaded with it, in the one language that is wanted.
 */
import { createElement, Fragment } from 'react';
import type { ReactNode } from 'react';
import { useSyncExternalStore } from 'react';
import { catalogues } from 'virtual:areas';

import { currentLanguage, localeOf, setLanguage, storeLanguage } from './language.ts';
import type { Language } from './language.ts';

/** Of a plural, `one` is left out in languages that have no such form. */
export interface Plural {
  readonly one?: string;
  readonly other: string;
}
export type Message = string | Plural;
export type Catalogue = Readonly<Record<string, Message>>;

/** The messages of another language: the same keys, plural where the English one is. */
export type Translated<English extends Catalogue> = {
  readonly [Key in keyof English]: English[Key] extends string ? string : Plural;
};

export type Values = Readonly<Record<string, string | number>>;
/** What a tag of a message stands for: `<link>text</link>`. */
export type Tags = Readonly<Record<string, (content: string) => ReactNode>>;

export interface Text<Keys extends string> {
  (key: Keys, values?: Values): string;
  /** With elements in it. */
  rich(key: Keys, tags: Tags, values?: Values): ReactNode;
}

const loaded = new Map<string, Catalogue>();
const listeners = new Set<() => void>();

/** Loads the texts of an area in the current language; at once where they are there. */
export async function loadTexts(area: string): Promise<void> {
  const language = currentLanguage();
  const key = `${area}/${language}`;
  const load = catalogues[area]?.[language];
  if (load === undefined || loaded.has(key)) return;
  loaded.set(key, (await load()).default);
}

/** Changes the language of the whole console. */
export async function changeLanguage(wanted: Language): Promise<void> {
  storeLanguage(wanted);
  const areas = new Set([...loaded.keys()].map((key) => key.split('/')[0]!));
  setLanguage(wanted);
  document.documentElement.lang = localeOf[wanted];
  await Promise.all([...areas].map(loadTexts));
  for (const listener of listeners) listener();
}

const subscribe = (listener: () => void): (() => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

/** The language, for what depends on it. */
export const useLanguage = (): Language => useSyncExternalStore(subscribe, currentLanguage);

/** The texts of an area: `const t = useText<typeof import('./messages/en.ts').default>('keys')`. */
export function useText<English extends Catalogue>(area: string): Text<keyof English & string> {
  const wanted = useLanguage();
  return textOf(loaded.get(`${area}/${wanted}`) ?? {}, wanted);
}

export function textOf<Keys extends string>(catalogue: Catalogue, of: Language): Text<Keys> {
  const plain = (key: Keys, values: Values = {}): string =>
    filled(formOf(catalogue[key] ?? key, values, of), values, of);
  return Object.assign(plain, {
    rich: (key: Keys, tags: Tags, values: Values = {}) => enriched(plain(key, values), tags),
  });
}

function formOf(message: Message, values: Values, of: Language): string {
  if (typeof message === 'string') return message;
  const form = new Intl.PluralRules(localeOf[of]).select(Number(values['n'] ?? 0));
  return form === 'one' ? (message.one ?? message.other) : message.other;
}

const filled = (text: string, values: Values, of: Language): string =>
  text.replaceAll(/\{(\w+)\}/g, (whole, name: string) => {
    const value = values[name];
    if (value === undefined) return whole;
    return typeof value === 'number' ? new Intl.NumberFormat(localeOf[of]).format(value) : isolated(value);
  });

/** A name that is written from right to left, or says that it were, turns nothing around it. */
const isolated = (text: string): string =>
  /[\u0590-\u08ff\u200e\u200f\u202a-\u202e\u2066-\u2069]/.test(text) ? `\u2068${text}\u2069` : text;

function enriched(text: string, tags: Tags): ReactNode {
  const parts = text.split(/<(\w+)>(.*?)<\/\1>/gs);
  const nodes: ReactNode[] = [];
  for (let at = 0; at < parts.length; at += 3) {
    nodes.push(parts[at]);
    const [tag, content] = [parts[at + 1], parts[at + 2]];
    if (tag !== undefined) nodes.push(tags[tag]?.(content ?? '') ?? content);
  }
  return createElement(Fragment, null, ...nodes);
}
