/** The part of a VAT identification number after its prefix, by country (Commission, VIES: "VAT identification number structure"). */
const forms: Readonly<Record<string, RegExp>> = {
  AT: /^U\d{8}$/,
  BE: /^[01]\d{9}$/,
  BG: /^\d{9,10}$/,
  CY: /^\d{8}[A-Z]$/,
  CZ: /^\d{8,10}$/,
  DE: /^\d{9}$/,
  DK: /^\d{8}$/,
  EE: /^\d{9}$/,
  ES: /^[A-Z0-9]\d{7}[A-Z0-9]$/,
  FI: /^\d{8}$/,
  FR: /^[A-HJ-NP-Z0-9]{2}\d{9}$/,
  GR: /^\d{9}$/,
  HR: /^\d{11}$/,
  HU: /^\d{8}$/,
  IE: /^(?:\d{7}[A-W][A-I]?|\d[A-Z]\d{5}[A-W])$/,
  IT: /^\d{11}$/,
  LT: /^(?:\d{9}|\d{12})$/,
  LU: /^\d{8}$/,
  LV: /^\d{11}$/,
  MT: /^\d{8}$/,
  NL: /^\d{9}B\d{2}$/,
  PL: /^\d{10}$/,
  PT: /^\d{9}$/,
  RO: /^\d{2,10}$/,
  SE: /^\d{12}$/,
  SI: /^\d{8}$/,
  SK: /^\d{10}$/,
};

/** Greek numbers start with EL. */
const prefixOf = (country: string): string => (country === 'GR' ? 'EL' : country);

/**
 * Whether a text has the form of a VAT identification number of a member of the European Union: the prefix, then the country's form. Only
 * the Commission's VIES knows whether the number is valid.
 */
export function isVatId(text: string, country: string): boolean {
  const form = forms[country];
  const compact = text.replace(/[ ./-]/g, '').toUpperCase();
  const prefix = prefixOf(country);
  return form !== undefined && compact.startsWith(prefix) && form.test(compact.slice(prefix.length));
}
