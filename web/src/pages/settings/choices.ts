import { localeOf } from '../../i18n/language.ts';
import type { Language } from '../../i18n/language.ts';

/** All that the browser knows, and the one that is set. */
export function zones(current: string): readonly string[] {
  return [...new Set(['UTC', current, ...Intl.supportedValuesOf('timeZone')])].toSorted((a, b) =>
    a === 'UTC' ? -1 : b === 'UTC' ? 1 : a < b ? -1 : 1,
  );
}

/** What browsers have names for, and no country: the API refuses them. */
const noCountries: ReadonlySet<string> = new Set('AC CP CQ DG EA EU EZ IC QO TA UN XA XB XK ZZ'.split(' '));
const letters = [...'ABCDEFGHIJKLMNOPQRSTUVWXYZ'];

/** Codes of countries with their names in a language, by name; outdated codes, which have the name of another one, left out. */
export function countries(language: Language): readonly (readonly [string, string])[] {
  const names = new Intl.DisplayNames(localeOf[language], { type: 'region', fallback: 'none' });
  const found = new Map<string, string>();
  for (const first of letters)
    for (const second of letters) {
      const code = first + second;
      const name = noCountries.has(code) ? undefined : names.of(code);
      if (name !== undefined && Intl.getCanonicalLocales(`und-${code}`)[0] === `und-${code}`) found.set(code, name);
    }
  return [...found].toSorted(([, a], [, b]) => a.localeCompare(b, localeOf[language]));
}
