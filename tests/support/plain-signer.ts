import type { ReasoningSigner } from '../../src/inference/dialects/dialect.ts';

/** Signatures that a fixture can print: they depend on nothing but the text. */
export const plainSigner: ReasoningSigner = {
  sign: (text) => `signed(${text.length})`,
  encrypt: (text) => `encrypted(${text})`,
};
