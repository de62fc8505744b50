import { encode } from 'uqr';

/** Rows of modules, true is dark, with error correction of level M; undefined: the text is too long. */
export function qrCode(text: string): readonly (readonly boolean[])[] | undefined {
  try {
    return encode([...new TextEncoder().encode(text)], { ecc: 'M', border: 0 }).data;
  } catch {
    return undefined;
  }
}
