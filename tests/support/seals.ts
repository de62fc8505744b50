import type { Seals } from '../../src/inference/dialects/dialect.ts';

/** Seals that a fixture can print: they depend on nothing but the text. */
export const plainSeals: Seals = {
  sign: (text) => `signed(${text.length})`,
  encrypt: (text) => `encrypted(${text})`,
};
