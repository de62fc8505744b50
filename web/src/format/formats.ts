/** To make a format costs much more than to use it (20 to 60 µs, a row of a list has eight), so each is made once. */
import { currentLocale } from '../i18n/language.ts';

type Make<Options, Format> = (locale: string, options: Options) => Format;

/** In the current language, where no other is named; `options` are literals of the program, and there are few of them. */
function kept<Options, Format>(make: Make<Options, Format>): (options: Options, locale?: string) => Format {
  const made = new Map<string, Format>();
  return (options, locale = currentLocale()) => {
    const name = `${locale} ${JSON.stringify(options)}`;
    let format = made.get(name);
    if (format === undefined) made.set(name, (format = make(locale, options)));
    return format;
  };
}

export const numberFormat = kept((locale, options: Intl.NumberFormatOptions) => new Intl.NumberFormat(locale, options));
export const dateFormat = kept(
  (locale, options: Intl.DateTimeFormatOptions) => new Intl.DateTimeFormat(locale, options),
);
