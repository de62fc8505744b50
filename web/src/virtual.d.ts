declare module 'virtual:areas' {
  import type { Area } from './app/area.ts';
  import type { Language } from './i18n/language.ts';
  import type { Catalogue } from './i18n/text.ts';

  /** Every `pages/<area>/area.tsx`, by name. */
  export const areas: readonly Area[];
  /** Every `pages/<area>/messages/<language>.ts`. */
  export const catalogues: Readonly<
    Record<string, Readonly<Record<Language, () => Promise<{ readonly default: Catalogue }>>>>
  >;
}

declare module '*.module.css' {
  const names: Readonly<Record<string, string>>;
  export default names;
}

declare module '*.css';
