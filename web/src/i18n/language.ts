/** The languages of the console; each area has a catalogue in every one of them. */
export const languages = { en: 'English', de: 'Deutsch', zh: '简体中文' } as const;
export type Language = keyof typeof languages;

/** For `Intl` and the `lang` of the page. */
export const localeOf: Readonly<Record<Language, string>> = { en: 'en-US', de: 'de-DE', zh: 'zh-CN' };

const isLanguage = (text: string | null): text is Language => text !== null && Object.hasOwn(languages, text);

/** The person's own choice, else the first language of the browser that we have. */
function chosenLanguage(): Language {
  const stored = localStorage.getItem('language');
  if (isLanguage(stored)) return stored;
  for (const wanted of navigator.languages) {
    const short = wanted.slice(0, 2).toLowerCase();
    if (isLanguage(short)) return short;
  }
  return 'en';
}

let current: Language | undefined;

export const currentLanguage = (): Language => (current ??= chosenLanguage());
export const currentLocale = (): string => localeOf[currentLanguage()];
/** Of everything that is formatted from now on; what is shown already: `changeLanguage`. */
export const setLanguage = (language: Language): void => void (current = language);
export const storeLanguage = (language: Language): void => localStorage.setItem('language', language);
