/** The model data that determine a token's bytes. */
export interface TokenTexts {
  getTokenString(id: number): string;
  getTokenAttributes(id: number): number;
}

/**
 * Returns a reader for a token's bytes, from its text in the vocabulary: byte-level vocabularies (as in GPT-2) write a printable character
 * for each byte, SentencePiece a bar for a blank and `<0xE9>` for a byte. Control and user-defined tokens are literal in both.
 */
export function byteReader(texts: TokenTexts, isBytePair: boolean): (id: number) => readonly number[] {
  const bytes = isBytePair ? bytesOfCharacters() : new Map<string, number>();
  return (id) => {
    const text = texts.getTokenString(id);
    const attributes = texts.getTokenAttributes(id);
    if ((attributes & literalAttributes) !== 0) return [...Buffer.from(text)];
    if (isBytePair) {
      const characters = [...text].map((character) => bytes.get(character));
      return characters.every((byte) => byte !== undefined) ? characters : [...Buffer.from(text)];
    }
    const byte = (attributes & byteAttribute) === 0 ? undefined : /^<0x([0-9A-Fa-f]{2})>$/.exec(text)?.[1];
    return byte === undefined ? [...Buffer.from(text.replaceAll(blankBar, ' '))] : [parseInt(byte, 16)];
  };
}

// llama_token_attr in llama.h: control, user-defined; byte.
const literalAttributes = 8 | 16;
const byteAttribute = 32;
const blankBar = '\u2581';

/** Returns the printable characters that stand for the 256 bytes: printable ones for themselves, the others from U+0100 on. */
function bytesOfCharacters(): ReadonlyMap<string, number> {
  const bytes = new Map<string, number>();
  let next = 256;
  for (let byte = 0; byte < 256; byte++) {
    const isPrintable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    bytes.set(String.fromCodePoint(isPrintable ? byte : next++), byte);
  }
  return bytes;
}
